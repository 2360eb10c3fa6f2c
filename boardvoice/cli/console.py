"""Words for people on standard error, results for programs on standard output."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Mapping
from typing import Any, TextIO

from edge_runtime.errors import OutputError


def complain(line: str) -> None:
    """Say something on standard error; a service may have closed it, and that is no failure."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(line + "\n")
            sys.stderr.flush()


def print_json(details: Mapping[str, Any], stream: TextIO | None = None) -> None:
    """Print one JSON object in one line.

    Raises:
        OutputError: Nobody can read it.
    """
    target = stream if stream is not None else sys.stdout
    if target is None:
        raise OutputError("Standard output is closed.", remedy="Leave it open or drop --json.")
    try:
        target.write(json.dumps(details) + "\n")
        target.flush()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise OutputError(
            f"The JSON cannot be written: {reason}.", remedy="Read it to its end."
        ) from error
