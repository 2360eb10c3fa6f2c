"""A result's file that the user named: looked at before the work, written whole after it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from edge_runtime.atomic import atomic_file, try_file
from edge_runtime.errors import OutputError


@contextlib.contextmanager
def output_file(path: Path, *, remedy: str = "") -> Iterator[IO[bytes]]:
    """As `atomic_file`, with a typed error.

    Args:
        path: Where the result goes; a device or pipe is written into.
        remedy: What to do where it cannot be written.

    Raises:
        OutputError: It cannot be written.
    """
    try:
        with atomic_file(path) as stream:
            yield stream
    except OSError as error:
        raise _cannot_write(path, error, remedy) from error


def require_writable(path: Path, *, remedy: str = "") -> None:
    """Refuse now what `output_file` would refuse after minutes of work.

    Raises:
        OutputError: It cannot be written.
    """
    try:
        try_file(path)
    except (OSError, ValueError) as error:
        raise _cannot_write(path, error, remedy) from error


def _cannot_write(path: Path, error: Exception, remedy: str) -> OutputError:
    reason = getattr(error, "strerror", None) or error
    return OutputError(f"{path} cannot be written: {reason}.", remedy=remedy)
