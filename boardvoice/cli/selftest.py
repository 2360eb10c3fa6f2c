"""`boardvoice selftest`: whether this device computes what the exporter computed."""

from __future__ import annotations

import argparse
import math
from typing import Any

from rich.console import Console
from rich.table import Table

from boardvoice.cli.console import complain, print_json, result_console
from boardvoice.cli.device_options import add_device_options, voice_options
from boardvoice.cli.progress import prepare_bar
from boardvoice.default_bundle import default_bundle
from edge_runtime.errors import SelfTestError
from edge_runtime.golden.selftest import ComponentResult, SelfTest, selftest
from edge_runtime.loader import LoadOptions, open_device
from edge_runtime.resources import NOT_PREPARED


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "selftest",
        help="whether this device computes what the exporter computed",
        description="Run every component of a bundle on the small inputs that it carries, and "
        "compare with what came out where it was exported.",
    )
    parser.add_argument(
        "bundle", metavar="BUNDLE", nargs="?", help="folder that 'export' wrote; a tiny one"
    )
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    add_device_options(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    folder = arguments.bundle or default_bundle()
    with prepare_bar(shown=not arguments.json) as progress:
        options = LoadOptions(**voice_options(arguments), on_prepare=progress)
        bundle, resources = open_device(folder, options)
    found = selftest(bundle, resources)
    notes = [*resources.notes, *filter(None, (resources.kv_fallback,))]
    if resources.fallback:
        notes.append(f"{NOT_PREPARED}{resources.not_prepared}")
    notes += [*resources.placement.notes, *resources.unfit.values(), *found.untested.values()]
    notes = list(dict.fromkeys(notes))
    if arguments.json:
        print_json({"bundle": str(folder), **found.as_dict(), "notes": notes})
    else:
        with result_console() as console:
            _show(console, found, notes)
    if not found.passed:
        # Printed as the result already; with --json, one object is what a program reads.
        names = ", ".join(result.component for result in found.failed)
        error = SelfTestError(
            f"This device does not compute what the exporter computed: {names}.",
            remedy="Run 'boardvoice doctor', which looks for the cause.",
        )
        complain(f"boardvoice: {error}")
        return error.exit_code
    return 0


def _show(console: Console, found: SelfTest, notes: list[str]) -> None:
    table = Table("component", "provider", "SNR dB", "at least", "largest error", "result")
    for result in found.results:
        table.add_row(
            result.component, result.provider or "-", *_figures(result),
            "passed" if result.passed else "FAILED",
        )  # fmt: skip
    console.print(table)
    for result in found.results:
        if result.reason:
            console.print(f"{result.component}: {result.reason}", markup=False)
    for note in notes:
        console.print(f"note: {note}", markup=False)
    console.print(f"KV cache: {found.kv_dtype}. Expected values by {found.computed_by}.")


def _figures(result: ComponentResult) -> tuple[str, str, str]:
    least = f"{result.least_snr_db:.1f}"
    found = result.deviation
    if found is None:
        return "-", least, "-"
    if found.exact:
        return "exact", least, "0"
    snr = f"{found.snr_db:.1f}" if math.isfinite(found.snr_db) else "-"
    return snr, least, f"{found.max_error:.1e}" if found.finite else "not finite"
