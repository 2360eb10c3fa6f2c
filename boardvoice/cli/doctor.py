"""`boardvoice doctor`: what stands between this device and speech."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.table import Table

from boardvoice.cli.console import complain, print_json, result_console
from boardvoice.default_bundle import default_bundle
from edge_runtime.doctor.report import Report, examine
from edge_runtime.doctor.scene import Scene
from edge_runtime.errors import BundleError, DoctorError, UsageError

_WORDS = {"ok": "ok", "warn": "WARN", "fail": "FAIL", "skipped": "skipped"}


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "doctor",
        help="what stands between this device and speech, with evidence and remedy",
        description="Check Python, ONNX Runtime, drivers, clocks, memory, disk, sound and a "
        "bundle, and run its golden vectors. Changes nothing. Exit code 0: this device can speak "
        "now; 15: it cannot.",
    )
    parser.add_argument(
        "--bundle", metavar="BUNDLE", help="folder that 'export' wrote; a tiny one unless given"
    )
    parser.add_argument("--profile", metavar="NAME", help="device profile, a name or a .yaml file")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument(
        "--root", default="/", metavar="DIR",
        help="read the board's files below this folder, such as a copy of another board's",
    )  # fmt: skip
    parser.add_argument("--machine", help="what 'uname -m' says there")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    root = Path(arguments.root)
    if not root.is_dir():
        raise UsageError(
            f"--root: {root} is no folder.", remedy="Name one with proc and sys in it."
        )
    bundle = Path(arguments.bundle) if arguments.bundle else _default()
    report = examine(
        Scene.of(bundle, profile=arguments.profile, root=root, machine=arguments.machine)
    )
    if arguments.json:
        print_json(report.as_dict())
    else:
        _show(report)
    if not report.can_speak:
        failed = [finding.check for finding in report.findings if finding.status == "fail"]
        error = DoctorError(f"This device cannot speak now: {', '.join(failed)}.")
        complain(f"boardvoice: {error}")
        return error.exit_code
    return 0


def _default() -> Path | None:
    try:
        return default_bundle()
    except BundleError as error:
        # Says so, and leaves the rest of the report standing.
        complain(f"boardvoice: {error}")
        return None


def _show(report: Report) -> None:
    table = Table("check", "", "finding", "seen in", show_lines=False)
    for one in report.findings:
        table.add_row(one.check, _WORDS[one.status], one.finding, one.evidence)
    with result_console(150, markup=False) as console:
        console.print(table)
        for one in report.findings:
            if one.remedy:
                console.print(f"{_WORDS[one.status]:8}{one.check}: {one.remedy}")
        console.print(
            f"Profile {report.profile}. "
            + ("This device can speak now." if report.can_speak else "It cannot speak now.")
        )
