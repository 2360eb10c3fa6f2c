"""`boardvoice board-report`: one file that a board's owner can send."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from rich.console import Console

from boardvoice.cli.console import complain, print_json
from boardvoice.default_bundle import default_bundle
from edge_runtime.board_report import board_report
from edge_runtime.doctor.scene import Scene
from edge_runtime.output_file import output_file, require_writable


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "board-report",
        help="one JSON file on this board: what it is, what works, how fast",
        description="Detection, versions, doctor, the NPU's trial, tuning and a short benchmark in "
        "one JSON, to send to somebody who has no such board. Names of users and hosts, serial "
        "numbers and addresses are left out; read it before you send it.",
    )
    parser.add_argument(
        "bundle", metavar="BUNDLE", nargs="?", help="folder that 'export' wrote; the demo voice"
    )
    parser.add_argument("--out", metavar="FILE", help="write it there; standard output")
    parser.add_argument("--profile", metavar="NAME", help="device profile, a name or a .yaml file")
    parser.add_argument(
        "--bench", action=argparse.BooleanOptionalAction, default=True,
        help="speak the benchmark's text twice (on)",
    )  # fmt: skip
    parser.set_defaults(run=_run, json=True)


def _run(arguments: argparse.Namespace) -> int:
    file = Path(arguments.out) if arguments.out else None
    if file is not None:
        # What can be refused is refused before minutes of measuring.
        require_writable(file)
    bundle = Path(arguments.bundle) if arguments.bundle else default_bundle()
    scene = Scene.of(bundle, profile=arguments.profile)
    console = Console(stderr=True)
    if console.is_terminal:
        with console.status("") as status:
            report = board_report(scene, bench=arguments.bench, on_step=status.update)
    else:
        report = board_report(scene, bench=arguments.bench)
    if file is None:
        print_json(report)
        return 0
    with output_file(file) as stream:
        stream.write((json.dumps(report, indent=1, ensure_ascii=False) + "\n").encode())
    complain(f"boardvoice: {file}")
    return 0
