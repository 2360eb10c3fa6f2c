"""`boardvoice bench`: what a bundle costs on this machine, beside what the machine can do."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from boardvoice.cli.bench_plot import write_bench_plot
from boardvoice.cli.console import complain, result_console
from boardvoice.cli.device_options import add_device_options, voice_options
from boardvoice.cli.memory_plot import require_plotting
from boardvoice.default_bundle import default_bundle
from edge_runtime.bench.compare import Comparison, compare, differences
from edge_runtime.bench.measure import TEXT, BenchPlan, OnStep, run_bench
from edge_runtime.bench.results import BenchResult, Component, Stat
from edge_runtime.errors import UsageError
from edge_runtime.loader import LoadOptions
from edge_runtime.output_file import require_writable
from edge_runtime.presets import PRESETS
from edge_runtime.speech import SpeechOptions


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    base, plan = SpeechOptions(), BenchPlan()
    parser = commands.add_parser(
        "bench",
        help="what a bundle costs on this machine, and how near that is to what it can do",
        description="Speak a text several times and show the time of every component, warm and "
        "cold, beside a short probe of the machine. Without BUNDLE, the tiny synthetic voice.",
    )
    parser.add_argument(
        "bundle", metavar="BUNDLE", nargs="?",
        help="folder that 'export' wrote, or the result file of an earlier run to show again",
    )  # fmt: skip
    parser.add_argument("--text", default=TEXT, help="text to speak (%(default)r)")
    parser.add_argument("--reference", metavar="AUDIO", help="speak with the voice of this audio")
    parser.add_argument(
        "--patches", type=int, default=plan.patches, help="patches per run (%(default)s)"
    )
    parser.add_argument("--runs", type=int, default=plan.runs, help="runs (%(default)s)")
    parser.add_argument(
        "--preset", choices=tuple(PRESETS), default=base.preset, help="(%(default)s)"
    )
    parser.add_argument("--steps", type=int, help="Euler steps; the preset's unless given")
    parser.add_argument("--cfg", type=float, default=base.cfg, help="guidance (%(default)s)")
    parser.add_argument(
        "--cold", action=argparse.BooleanOptionalAction, default=True,
        help="measure the first request of a fresh process as well (on)",
    )  # fmt: skip
    parser.add_argument(
        "--kernels", action=argparse.BooleanOptionalAction, default=True,
        help="measure every product with weights alone as well (on)",
    )  # fmt: skip
    parser.add_argument("--json", dest="json_file", metavar="FILE", help="write the result there")
    parser.add_argument("--compare", metavar="FILE", help="set it beside an earlier result")
    parser.add_argument("--plot", metavar="FILE", help="draw it (needs matplotlib)")
    parser.add_argument("-q", "--quiet", action="store_true", help="no tables")
    add_device_options(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    # What can be refused is refused before minutes of measuring.
    before = BenchResult.load(Path(arguments.compare)) if arguments.compare else None
    if arguments.json_file:
        require_writable(Path(arguments.json_file))
    if arguments.plot:
        require_plotting(Path(arguments.plot))
    result = _result(arguments)
    if arguments.json_file:
        result.save(Path(arguments.json_file))
    if not arguments.quiet:
        with result_console() as console:
            _show(console, result)
            if before is not None:
                _show_comparison(console, compare(result, before), differences(result, before))
    if arguments.plot:
        write_bench_plot(Path(arguments.plot), result, before)
    return 0


def _result(arguments: argparse.Namespace) -> BenchResult:
    bundle = arguments.bundle
    if bundle is not None and Path(bundle).is_file():
        return BenchResult.load(Path(bundle))
    if bundle == "":
        raise UsageError("BUNDLE is empty.", remedy="Name a folder or leave it out.")
    plan = BenchPlan(
        text=arguments.text,
        reference=arguments.reference,
        patches=arguments.patches,
        runs=arguments.runs,
        options=SpeechOptions(
            preset=arguments.preset, steps=arguments.steps, cfg=arguments.cfg
        ),
        cold=arguments.cold,
        kernels=arguments.kernels,
    )
    with _steps(shown=not arguments.quiet) as tell:
        options = LoadOptions(**voice_options(arguments))
        return run_bench(bundle or default_bundle(), options, plan, tell)


@contextmanager
def _steps(*, shown: bool) -> Iterator[OnStep]:
    console = Console(stderr=True)
    if not (shown and console.is_terminal):
        yield lambda _step: None
        return
    with console.status("") as status:
        yield status.update


def _show(console: Console, result: BenchResult) -> None:
    machine, setup, probe = result.machine, result.setup, result.probe
    console.print(
        f"{setup.bundle} ({setup.family}, {setup.weights}, KV {setup.kv_dtype}, "
        f"{'prepared' if setup.prepared else 'not prepared'}) on {machine.cpu}, "
        f"{setup.threads} threads, onnxruntime {machine.onnxruntime}",
        soft_wrap=True,
    )
    console.print(
        f"{setup.runs} runs of {setup.patches} patches of {setup.patch_seconds * 1000:.0f} ms, "
        f"{setup.prefix_rows} rows before them, {setup.preset}, {setup.steps} steps, "
        f"guidance {setup.cfg:g}",
        soft_wrap=True,
    )
    table = Table("", "p50", "p90", "p99", "GFLOP/s", "GB/s", "bound by", "of limit", "alone")
    for name, component in result.components.items():
        table.add_row(
            f"{name}, ms per {component.per}", *_cells(component.ms), *_reached(component)
        )
    for name, stat in (
        ("one patch, ms", result.patch_ms),
        ("one patch, CPU-s", result.cpu_s_per_patch),
        ("first audio, ms", result.first_audio_ms),
        ("real-time factor", result.rtf),
    ):
        table.add_row(name, *_cells(stat))
    console.print(table)
    console.print("'alone': the products with weights by themselves, in ms; see docs/bench.md.")
    gflops = ", ".join(f"{name} {value:.0f}" for name, value in probe.gflops.items())
    console.print(
        f"The machine's limit, {probe.threads} threads: GFLOP/s {gflops}; "
        f"reads {probe.read_gbs:.1f} GB/s.",
        soft_wrap=True,
    )
    console.print(
        f"Load {result.load_ms:.0f} ms, KV {result.kv_mb:.1f} MB, "
        f"anonymous memory at most {result.peak_rss_anon_mb:.0f} MB.",
        soft_wrap=True,
    )
    cold = result.cold
    if cold is not None:
        read = "" if cold.disk_read_mb is None else f", {cold.disk_read_mb:.0f} MB read from disk"
        console.print(
            f"Cold: audio {cold.start_to_audio_ms:.0f} ms after the process began (import "
            f"{cold.import_ms:.0f}, load {cold.load_ms:.0f}, first audio "
            f"{cold.first_audio_ms:.0f}){read}.",
            soft_wrap=True,
        )


def _cells(stat: Stat) -> list[str]:
    return [_number(value) for value in (stat.p50, stat.p90, stat.p99)]


def _reached(component: Component) -> Sequence[str]:
    reached = component.reached
    if reached is None:
        return ()
    left_out = f" ({reached.uncounted} products not counted)" if reached.uncounted else ""
    return (
        _number(reached.gflops), _number(reached.gbs), reached.limit,
        f"{reached.fraction:.0%}{left_out}",
        "" if reached.kernels_ms is None else _number(reached.kernels_ms),
    )  # fmt: skip


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def _show_comparison(
    console: Console,
    rows: Sequence[Comparison],
    others: dict[str, tuple[Any, Any]],
) -> None:
    table = Table("", "now", "before", "now / before", "")
    for row in rows:
        ratio = f"{row.ratio:.3f}" if row.before else ""
        verdict = "" if row.verdict == "same" else row.verdict
        style = "red" if row.regression else None
        table.add_row(row.name, _number(row.now), _number(row.before), ratio, verdict, style=style)
    console.print(table)
    for name, (now, before) in others.items():
        console.print(f"Differs: {name} is {now!r}, was {before!r}.", soft_wrap=True, markup=False)
    worse = [row.name for row in rows if row.regression]
    if worse:
        complain(f"boardvoice: worse beyond noise: {', '.join(worse)}.")
