"""`boardvoice`: finds the subcommand, runs it, turns errors into messages and exit codes."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from importlib.metadata import version

from boardvoice.cli import export, memory, prepare, say
from edge_runtime.errors import BoardvoiceError, MemoryBudgetError

INTERRUPTED = 130

_EXIT_CODES = """\
exit codes:
  0 done              5 bundle             10 back end
  1 unexpected        6 checkpoint         11 output
  2 usage             7 capacity           12 memory
  3 text              8 dependency         13 prepare
  4 audio             9 profile           130 interrupted (Ctrl-C)
                                          143 terminated
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    arguments = _parser().parse_args(argv)
    try:
        try:
            return int(arguments.run(arguments))
        except MemoryError as error:
            # Below RLIMIT_AS and the like, any allocation may fail.
            raise MemoryBudgetError(
                "An allocation failed: there is no memory left for this process.",
                remedy="Raise the limit of this process, or end other programs.",
                limited_by="the allocator",
            ) from error
    except BoardvoiceError as error:
        if getattr(arguments, "json", False):
            details: dict[str, object] = {
                "code": error.code, "message": error.message, "remedy": error.remedy
            }  # fmt: skip
            if isinstance(error, MemoryBudgetError):
                details |= {
                    "needed_bytes": error.needed,
                    "available_bytes": error.available,
                    "limited_by": error.limited_by,
                }
            sys.stdout.write(json.dumps({"error": details}) + "\n")
        sys.stderr.write(f"boardvoice: {error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("boardvoice: interrupted.\n")
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="boardvoice",
        description="Big open speech models on small boards.",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=version("boardvoice"))
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    say.add_parser(commands)
    export.add_parser(commands)
    prepare.add_parser(commands)
    memory.add_parser(commands)
    return parser
