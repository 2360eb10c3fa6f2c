"""Words for people on standard error, results for programs on standard output."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import sys
from collections.abc import Iterator, Mapping
from typing import Any, TextIO

from rich.console import Console

from edge_runtime.errors import OutputError


def complain(line: str) -> None:
    """Say something on standard error; a service may have closed it, and that is no failure."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(line + "\n")
            sys.stderr.flush()


def write_result(text: str, stream: TextIO | None = None) -> None:
    """Write a result on standard output, or on another stream.

    Raises:
        OutputError: It is closed, its disk is full, or its reader went away.
    """
    target = stream if stream is not None else sys.stdout
    if target is None:
        raise OutputError("Standard output is closed.", remedy="Leave it open.")
    # A question mark for what a plain terminal cannot show is better than no result.
    encoding = target.encoding or "utf-8"
    try:
        target.write(text.encode(encoding, "replace").decode(encoding))
        target.flush()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise OutputError(
            f"The result cannot be written: {reason}.", remedy="Read it to its end."
        ) from error


def print_json(details: Mapping[str, Any], stream: TextIO | None = None) -> None:
    """Print one JSON object in one line.

    Raises:
        OutputError: Nobody can read it.
    """
    write_result(json.dumps(details) + "\n", stream)


class _Lines(io.StringIO):
    """Text for standard output: rich asks for the encoding, and draws plain lines for ASCII."""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """That of standard output."""
        return getattr(sys.stdout, "encoding", None) or "utf-8"


@contextlib.contextmanager
def result_console(width: int = 120, **options: Any) -> Iterator[Console]:
    """A console whose tables and lines are written when the block ends.

    Args:
        width: Columns where standard output is no terminal: a pipe has no width of its own.
        options: More of `Console`'s.

    Raises:
        OutputError: Nobody can read them.
    """
    text = _Lines()
    terminal = sys.stdout is not None and sys.stdout.isatty()
    # Not on standard output itself: where the reader goes away, rich would end the process.
    console = Console(
        file=text, width=None if terminal else width, force_terminal=terminal or None, **options
    )
    yield console
    write_result(text.getvalue())


class LogLines(logging.Handler):
    """Says what is logged on standard error, and knows what it said.

    Attributes:
        said: Messages, as they were logged.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Say one message."""
        message = record.getMessage()
        self.said.add(message)
        complain(f"boardvoice: {message}")


@contextlib.contextmanager
def shown_log() -> Iterator[LogLines]:
    """Show this package's log while the block runs."""
    logger, lines = logging.getLogger("boardvoice"), LogLines()
    logger.addHandler(lines)
    try:
        yield lines
    finally:
        logger.removeHandler(lines)
