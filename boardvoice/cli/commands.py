"""Finds the subcommand, runs it, and turns typed errors into messages and exit codes."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, NoReturn

from boardvoice.cli import (
    bench,
    board_report,
    doctor,
    evaluate,
    export,
    memory,
    plan,
    prepare,
    profiles,
    rknn,
    say,
    selftest,
    serve,
    service,
    tune,
    voices,
)
from boardvoice.cli.console import complain, print_json, shown_log, write_result
from edge_runtime.errors import BoardvoiceError, MemoryBudgetError, OutputError, UsageError
from edge_runtime.memory import malloc

__all__ = ["complain", "run"]

_EXIT_CODES = """\
exit codes:
  0 done              6 checkpoint         12 memory              15 doctor: cannot speak
  1 unexpected        7 capacity           13 prepare
  2 usage             8 dependency        130 interrupted (Ctrl-C)
  3 text              9 profile           143 terminated
  4 audio            10 back end                              17 voice
  5 bundle           11 output             14 self-test          16 service
"""


class _Parser(argparse.ArgumentParser):
    """Reports a wrong command line like every other error, and takes no abbreviations."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **kwargs})

    def _print_message(self, message: str, file: Any = None) -> None:
        # argparse passes over an output that cannot be written.
        if file is not None and file is sys.stdout:
            write_result(message)
        else:
            super()._print_message(message, file)

    def error(self, message: str) -> NoReturn:
        complain(self.format_usage().rstrip())
        raise UsageError(f"{self.prog}: {message}.", remedy="See --help.")


def run(argv: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    # Each arena reserves 64 MiB of address space, and ours allocate little.
    malloc.limit_arenas(2)
    try:
        return _dispatch(argv)
    except BoardvoiceError as error:
        if "--json" in argv:
            with contextlib.suppress(OutputError):
                print_json({"error": _details(error)})
        complain(f"boardvoice: {error}")
        return error.exit_code


def _dispatch(argv: Sequence[str]) -> int:
    arguments = _parser().parse_args(argv)
    try:
        with shown_log() as arguments.log:
            return int(arguments.run(arguments))
    except MemoryError as error:
        # Below RLIMIT_AS and the like, any allocation may fail.
        raise MemoryBudgetError(
            "An allocation failed: there is no memory left for this process.",
            remedy="Raise the limit of this process, or end other programs.",
            limited_by="the allocator",
        ) from error


def _details(error: BoardvoiceError) -> dict[str, object]:
    details: dict[str, object] = {
        "code": error.code, "message": error.message, "remedy": error.remedy
    }  # fmt: skip
    if isinstance(error, MemoryBudgetError):
        details |= {
            "needed_bytes": error.needed,
            "available_bytes": error.available,
            "limited_by": error.limited_by,
        }
    return details


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="boardvoice",
        description="Big open speech models on small boards.",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=version("boardvoice"))
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in (
        say, serve, service, export, prepare, memory, bench, tune, evaluate, profiles, plan,
        selftest, doctor, board_report, rknn, voices,
    ):  # fmt: skip
        module.add_parser(commands)
    return parser
