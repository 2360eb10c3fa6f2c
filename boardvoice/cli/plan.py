"""`boardvoice plan`: whether a bundle fits a board not at hand, and how fast it would be there."""

from __future__ import annotations

import argparse
from typing import Any

from rich.console import Console
from rich.table import Table

from boardvoice.cli.console import print_json, result_console
from edge_runtime.bundle import Bundle
from edge_runtime.loader import choose_profile, parse_size
from edge_runtime.plan.estimate import Estimate
from edge_runtime.plan.memory import MemoryPlan
from edge_runtime.plan.planner import Alternative, Plan, Planner
from edge_runtime.plan.request import PlanRequest
from edge_runtime.presets import PRESETS
from edge_runtime.state_folder import state_folder

_MIB, _GIB = 1 << 20, 1 << 30
_VERDICTS = {
    "fits": "fits",
    "rereads": "does not fit: it would run, but read weights from storage again for every patch",
    "refused": "does not fit: the guard would refuse to speak",
    "unknown": "depends on the board's memory",
}


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    base = PlanRequest()
    parser = commands.add_parser(
        "plan",
        help="whether a bundle fits a board that is not at hand, and how fast it would be",
        description="Memory and times on paper, from the figures in a device profile. Nothing is "
        "loaded or run; docs/plan.md says how it is reckoned and how far off it may be.",
    )
    parser.add_argument("bundle", metavar="BUNDLE", help="folder that 'export' wrote")
    parser.add_argument(
        "--profile", metavar="NAME", help="device profile, a name or a .yaml file; this board's"
    )
    parser.add_argument(
        "--memory", type=_size, metavar="SIZE",
        help="memory of the board, such as 8G; the profile's where it says",
    )  # fmt: skip
    parser.add_argument("--threads", type=int, help="threads; the profile's unless given")
    parser.add_argument(
        "--text-rows", type=int, default=base.text_rows, metavar="ROWS",
        help="KV rows of the text, a token each (%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--reference", type=float, default=base.reference_s, metavar="SECONDS",
        help="length of a reference that is heard for the first time (none)",
    )  # fmt: skip
    parser.add_argument(
        "--max-len", type=int, default=base.patches, help="patches spoken (%(default)s)"
    )
    parser.add_argument(
        "--preset", choices=tuple(PRESETS), default=base.preset, help="(%(default)s)"
    )
    parser.add_argument("--steps", type=int, help="Euler steps; the preset's unless given")
    parser.add_argument("--cfg", type=float, default=base.cfg, help="guidance (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print the plan as JSON")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    request = PlanRequest(
        text_rows=arguments.text_rows,
        reference_s=arguments.reference,
        patches=arguments.max_len,
        preset=arguments.preset,
        steps=arguments.steps,
        cfg=arguments.cfg,
        threads=arguments.threads,
        memory_bytes=arguments.memory,
    )
    profile = choose_profile(arguments.profile)
    bundle = Bundle.open(arguments.bundle, verify=False)
    plan = Planner(bundle, state_folder()).plan(profile, request)
    if arguments.json:
        print_json(plan.as_dict())
        return 0
    with result_console(highlight=False) as console:
        _show(console, plan)
    return 0


def _show(console: Console, plan: Plan) -> None:
    request = plan.request
    console.print(
        f"{plan.bundle} ({plan.weights}) on {plan.profile}: {plan.title}\n"
        f"{request.patches} patches after {plan.prefix_rows} rows, {plan.rows} KV rows in "
        f"{plan.kv_dtype}; {request.euler_steps} steps, guidance {request.cfg:g}"
    )
    console.print(_memory_table(plan.memory))
    console.print(_fit(plan.memory))
    console.print(f"Sessions and scratch memory: {plan.memory.source}.")
    if plan.no_estimate:
        console.print(f"No estimate of times: {plan.no_estimate}.")
    if plan.cpu is not None:
        _times(console, plan.cpu, "Times on the CPU alone")
    if plan.placed is not None:
        _times(console, plan.placed, "Times as the profile places graphs")
    if plan.alternatives:
        console.print(_changes(plan.alternatives))
    for word, lines in (
        ("note", plan.notes),
        ("assumed", plan.assumed),
        ("figure", [f"{key} {value:g}: {source}" for key, value, source in plan.figures]),
    ):
        for line in lines:
            console.print(f"  {word}: {line}")
    console.print("Run on such hardware: " + (plan.verified or "never"))


def _memory_table(memory: MemoryPlan) -> Table:
    table = Table("part", "file-backed MiB", "anonymous MiB", title="Memory", title_justify="left")
    for row in memory.rows:
        table.add_row(row.name, _mib(row.file_backed), _mib(row.planned))
    table.add_row("all", _mib(memory.mapped_bytes), _mib(memory.anonymous_bytes))
    return table


def _fit(memory: MemoryPlan) -> str:
    words = _VERDICTS[memory.verdict]
    if memory.board_bytes is not None and memory.left_bytes is not None:
        words += (
            f" ({memory.board_bytes / _GIB:g} GiB, of which {memory.left_bytes / _MIB:.0f} MiB "
            "are left for speech)"
        )
    if memory.needed_gib is not None:
        words += f"; a board needs {memory.needed_gib} GiB"
    return f"Memory: {words}. Disk: {memory.disk_bytes / 1e9:.1f} GB."


def _times(console: Console, times: Estimate, title: str) -> None:
    table = Table(
        "component", "on", "per", "ms", "weights", "products", "KV cache", "rest", "GFLOP",
        title=title, title_justify="left",
    )  # fmt: skip
    for one in times.components:
        parts = (one.memory_ms, one.compute_ms, one.attention_ms, one.other_ms)
        bound = "≥ " if one.at_best else ""
        table.add_row(
            one.name, one.place, one.per, f"{bound}{one.ms:.1f}",
            *(f"{part:.1f}" for part in parts), f"{one.gflop:.2f}",
        )  # fmt: skip
    console.print(table)
    bound = "at least " if times.at_best else ""
    console.print(
        f"One patch {bound}{times.ms_per_patch:.0f} ms, first audio {bound}"
        f"{times.first_audio_ms:.0f} ms, real-time factor {bound}{times.rtf:.2f}"
    )


def _changes(alternatives: tuple[Alternative, ...]) -> Table:
    table = Table(
        "change", "memory", "board needs", "MiB", "ms per patch", "RTF",
        title="What would change it (CPU alone)", title_justify="left",
    )  # fmt: skip
    for one in alternatives:
        table.add_row(
            one.change,
            {"fits": "fits", "unknown": ""}.get(one.verdict, "does not fit"),
            f"{one.needed_gib} GiB" if one.needed_gib else "",
            _mib(one.anonymous_bytes + one.mapped_bytes),
            "" if one.ms_per_patch is None else f"{one.ms_per_patch:.0f}",
            "" if one.rtf is None else f"{one.rtf:.2f}",
        )
    return table


def _mib(count: int) -> str:
    return f"{count / _MIB:.1f}" if count else ""


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
