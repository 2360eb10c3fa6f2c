"""`boardvoice`: the way in and out of the process; signals, errors and exit codes."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    # Ctrl-C while the libraries load ends the process at once: they cannot be interrupted halfway.
    python_handler = signal.signal(signal.SIGINT, signal.SIG_DFL)
    commands = importlib.import_module("boardvoice.cli.commands")
    signal.signal(signal.SIGINT, python_handler)
    signal.signal(signal.SIGTERM, _terminate)
    try:
        return int(commands.run(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt:
        commands.complain("boardvoice: interrupted.")
        return INTERRUPTED
    finally:
        _flush()


def _terminate(_number: int, _frame: FrameType | None) -> None:
    # Raised, so that temporary files go before the process does.
    raise SystemExit(TERMINATED)


def _flush() -> None:
    """Flush now: at exit, Python would print a traceback about a reader that went away."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
