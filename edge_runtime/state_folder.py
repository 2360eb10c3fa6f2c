"""Where this device keeps what it makes for itself: prepared bundles, tuning, voices."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "BOARDVOICE_STATE"


def state_folder() -> Path:
    """The state folder.

    ``$BOARDVOICE_STATE``, ``$XDG_STATE_HOME/boardvoice`` or ``~/.local/state/boardvoice``.
    It may not exist yet and may not be writable; who needs it finds out and says so.
    """
    if named := os.environ.get(VARIABLE):
        return Path(named)
    if base := os.environ.get("XDG_STATE_HOME"):
        return Path(base) / "boardvoice"
    try:
        return Path.home() / ".local/state/boardvoice"
    except RuntimeError:
        # No HOME and no passwd entry, as in a bare container: a path that cannot be written.
        return Path("/nonexistent/boardvoice")
