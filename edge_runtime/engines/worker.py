"""The process that builds an engine. Reads one JSON request on stdin."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from edge_runtime.backends.live_session import live_session, open_session
from edge_runtime.backends.ort import session_options
from edge_runtime.backends.ort_provider import OrtProvider
from edge_runtime.errors import BackendError
from edge_runtime.prepare.worker import end_with_parent


def main() -> int:
    """Make the session that the request describes; the engine is built on the way."""
    end_with_parent()
    request = json.load(sys.stdin)
    providers = [OrtProvider(**one) for one in request["providers"]]
    options = session_options(request["threads"], spinning=False)
    try:
        live_session(open_session, Path(request["graph"]), options, providers)
    except BackendError as error:
        sys.stderr.write(f"{error.message}\n")
        return 1
    return 0
