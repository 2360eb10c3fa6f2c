"""`boardvoice memory`: where every megabyte of a run goes."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from boardvoice.cli.console import print_json, result_console
from boardvoice.cli.device_options import add_device_options, load_voice
from boardvoice.cli.memory_plot import require_plotting, write_plot
from edge_runtime.bundle import Bundle
from edge_runtime.memory.limits import ProcessMemory
from edge_runtime.memory.report import MemoryReport, MemoryRow, memory_report
from edge_runtime.memory.watch import MemoryWatch
from edge_runtime.voice import Voice

_TEXT = "Now serving number forty two at counter seven."
_MIB = 1 << 20


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "memory",
        help="where every megabyte of a run goes, planned beside measured",
        description="Load a bundle, speak a text and show where the memory goes.",
    )
    parser.add_argument("bundle", metavar="BUNDLE", help="folder that 'export' wrote")
    parser.add_argument("--text", default=_TEXT, help="text to speak (%(default)r)")
    parser.add_argument("--max-len", type=int, default=20, help="most patches (%(default)s)")
    parser.add_argument("--reference", metavar="AUDIO", help="speak with the voice of this audio")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument(
        "--plot", metavar="FILE", help="draw memory over time (needs matplotlib)"
    )
    add_device_options(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.plot:
        # Before the run, and before the baseline: the library takes memory as well.
        require_plotting(Path(arguments.plot))
    baseline = ProcessMemory.read().anonymous
    holder: list[Voice] = []

    def kv() -> int:
        return holder[0].kv_bytes() if holder else 0

    with MemoryWatch(keep=True, gauges={"kv": kv}) as watch:
        voice = load_voice(arguments.bundle, arguments, shown=not arguments.json)
        holder.append(voice)
        speech = voice.say(
            arguments.text,
            reference=arguments.reference,
            seed=0,
            max_len=arguments.max_len,
            retry_badcase=False,
        )
    report = memory_report(
        Bundle.open(arguments.bundle, verify=False),
        voice.resources,
        baseline=baseline,
        peak=watch.peak + sum(voice.resources.guard.device_bytes.values()),
        kv_bytes=speech.metrics.kv_bytes,
        kv_row_bytes=voice.kv_row_bytes(),
        limits=voice.resources.guard.limits(),
    )
    if arguments.plot:
        write_plot(Path(arguments.plot), watch.samples, voice.resources.guard.events)
    if arguments.json:
        events = [f"{event.kind}: {event.detail}" for event in voice.resources.guard.events]
        details = {**report.as_dict(), "events": events, "run": speech.metrics.as_dict()}
        print_json(details)
    else:
        with result_console() as console:
            _show(console, report)
    return 0


def _show(console: Console, report: MemoryReport) -> None:
    table = Table("part", "file-backed MiB", "planned MiB", "measured MiB")
    for row in (*report.rows, report.total):
        table.add_row(row.name, *(_mib(value) for value in _values(row)))
    console.print(table)
    reason = report.not_prepared.rstrip(".")
    console.print(
        f"KV: {report.kv_dtype}, {report.kv_row_bytes} bytes per row, "
        f"{_mib(report.kv_bucket_bytes)} MiB per bucket. "
        + ("Weights are prepared." if report.prepared else f"Not prepared: {reason}.")
    )
    if report.npu_bytes:
        console.print(f"The NPU holds {_mib(report.npu_bytes)} MiB besides.")
    for limit in report.limits:
        console.print(
            f"Limit: {limit.name}, {_mib(limit.limit)} MiB, {_mib(limit.available)} MiB left."
        )


def _values(row: MemoryRow) -> tuple[int, int, int | None]:
    return row.file_backed, row.planned, row.measured


def _mib(count: int | None) -> str:
    return "" if count is None else f"{count / _MIB:.1f}"
