"""`boardvoice`: the way in and out of the process; signals, errors and exit codes."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

from edge_runtime.errors import BoardvoiceError, DependencyError, MemoryBudgetError

INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    _open_missing_streams()
    try:
        return _run(sys.argv[1:] if argv is None else argv)
    finally:
        _flush()


def _run(argv: Sequence[str]) -> int:
    # Ctrl-C while the libraries load ends the process at once: they cannot be interrupted halfway.
    with _handling(signal.SIGINT, signal.SIG_DFL):
        try:
            commands = importlib.import_module("boardvoice.cli.commands")
        except (ImportError, MemoryError) as error:
            return _cannot_import(error, argv)
    # Given back at the end: the process may be a program that goes on after this call.
    with _handling(signal.SIGTERM, _terminate):
        try:
            return int(commands.run(argv))
        except KeyboardInterrupt:
            commands.complain("boardvoice: interrupted.")
            return INTERRUPTED


@contextlib.contextmanager
def _handling(number: signal.Signals, handler: Any) -> Iterator[None]:
    former = signal.signal(number, handler)
    try:
        yield
    finally:
        # None: it was not installed from Python, and cannot be installed from here.
        if former is not None:
            signal.signal(number, former)


def _open_missing_streams() -> None:
    """Fill the standard descriptors that were closed, or the next files opened would take them.

    What a library then prints would end up in the user's file.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number, which is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def _cannot_import(error: ImportError | MemoryError, argv: Sequence[str]) -> int:
    """Say which package cannot be imported: most often a build of ONNX Runtime for other libraries.

    Not even the doctor can start then.
    """
    found: BoardvoiceError = DependencyError(
        f"A package that is needed cannot be imported: {error}.",
        remedy="Install boardvoice again with pip. If onnxruntime misses a library, uninstall all "
        "onnxruntime packages and install the build that belongs to this board (docs/doctor.md).",
    )
    # The second is the dynamic linker's, below RLIMIT_AS.
    if isinstance(error, MemoryError) or "failed to map segment" in str(error):
        found = MemoryBudgetError(
            "The libraries themselves do not fit into the memory of this process.",
            remedy="Raise the limit of this process (ulimit -v).",
        )
    details = {"code": found.code, "message": found.message, "remedy": found.remedy}
    # The console's own helpers may be what cannot be imported.
    for stream, text in (
        (sys.stdout if "--json" in argv else None, json.dumps({"error": details})),
        (sys.stderr, f"boardvoice: {found}"),
    ):
        if stream is not None:
            with contextlib.suppress(OSError, ValueError):
                stream.write(text + "\n")
    return found.exit_code


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
