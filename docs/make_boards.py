"""Writes docs/boards.md from the profiles: ``python docs/make_boards.py`` from the root."""

from __future__ import annotations

import runpy
import tempfile
from pathlib import Path

from device_profiles.catalog import load_profile
from device_profiles.figures import Figure
from device_profiles.layers import ProfileStore
from device_profiles.schema import Profile
from device_profiles.validation import validated
from edge_runtime.bundle import Bundle
from edge_runtime.plan.estimate import ComponentEstimate, Estimate
from edge_runtime.plan.planner import Plan, Planner
from edge_runtime.plan.request import PlanRequest

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "docs/boards.md"

_HEAD = """\
# Boards

Made from `device_profiles/boards/*.yaml` by `python docs/make_boards.py`. `boardvoice profiles
explain` says which one fits the board at hand, and why.

*Verified* means that this package was run on such hardware; the other profiles are made from
public documents and reports. **CUDA, TensorRT and the NPU were not verified on hardware**: their
paths ran with stand-ins on a CPU only. A provider that does not work on the board is not used ([how
that is found](providers.md), [NPU](npu.md)); the log says so once, and every result in its
`warnings`.

"""
_BOARD_COLUMNS = (
    "profile", "board", "chip", "providers", "flow (graphs)", "weights", "KV", "threads",
    "reserve MiB", "verified",
)  # fmt: skip

_FIGURES = """
## Figures

What [`boardvoice plan`](plan.md) divides by. *m* was measured by somebody, the others are from data
sheets or arithmetic, *p* is a peak of the hardware; a figure with */thread* is for one thread.
Sources stand in the YAML, beside each figure.

"""
_FIGURE_COLUMNS = (
    "profile", "memory GB/s", "GPU memory GB/s", "CPU f32 GFLOP/s", "CPU int8 GOP/s",
    "CPU int8 in blocks GOP/s", "CPU int4 in blocks GOP/s", "GPU f32 GFLOP/s",
    "GPU int8 TOP/s", "NPU int8 TOP/s", "memory GiB",
)  # fmt: skip

_PROJECTED = "orange-pi-5-plus"
_PROJECTION = """
## A projection for RK3588

Nobody has run this on such a board. It is what `boardvoice plan BUNDLE --profile orange-pi-5-plus`
says of VoxCPM2 at its real sizes in int8: quality preset, after 36 rows without a reference,
milliseconds per patch. A patch is 160 ms of audio. ≥ marks a lower bound.

"""
_UNVERIFIED = """
Not known without a board, and what `boardvoice board-report` brings back: whether the NPU computes
what the simulator computes; what an evaluation takes there, beside the lower bound; how much slower
CPU and NPU are while both read memory; the CPU figures themselves (its share of a peak is that of
another CPU); clocks under load and heat; what starting the model takes.
"""

_NOTES = """
## What to know
"""


def boards_page() -> str:
    """The page as text."""
    store = ProfileStore.shipped()
    profiles = [validated(store.layers(file)) for file in store.candidates()]
    notes: dict[tuple[str, ...], list[str]] = {}
    for profile in profiles:
        if profile.notes:
            notes.setdefault(profile.notes, []).append(profile.name)
    return (
        _HEAD
        + _header(_BOARD_COLUMNS)
        + "".join(_board(profile) for profile in profiles)
        + _FIGURES
        + _header(_FIGURE_COLUMNS)
        + "".join(_figures(profile) for profile in profiles)
        + _projection()
        + _NOTES
        + "".join(
            f"\n{', '.join(names)}\n\n" + "".join(f"- {line}\n" for line in lines)
            for lines, names in notes.items()
        )
    )


def _projection() -> str:
    outline = runpy.run_path(str(ROOT / "tests/helpers/full_size_outline.py"))["full_size_outline"]
    with tempfile.TemporaryDirectory() as folder:
        bundle = Bundle.open(outline(Path(folder)), verify=False)
        # Nothing that was measured here: the table must not depend on who makes it.
        planner = Planner(bundle, Path("/nonexistent"))
        plan = planner.plan(load_profile(_PROJECTED), PlanRequest())
    assert plan.cpu is not None
    assert plan.placed is not None
    return _PROJECTION + _parts(plan.cpu, plan.placed) + _sources(plan) + _UNVERIFIED


def _parts(cpu: Estimate, placed: Estimate) -> str:
    beside = {one.name: one for one in placed.components}
    lines = [_header(("part", "CPU alone", "flow on the NPU", "weights", "products", "rest"))]
    for one in cpu.components:
        if one.per == "patch":
            other = beside[one.name]
            parts = (other.memory_ms, other.compute_ms, other.attention_ms + other.other_ms)
            cells = (one.name, _ms(one), _ms(other), *(f"{part:.0f}" for part in parts))
            lines.append(f"| {' | '.join(cells)} |\n")
    decoder = min(beside["vae_decode"].ms, beside["flow"].ms)
    lines.append(
        f"| in turn | {cpu.ms_per_patch:.0f} | ≥ {placed.ms_per_patch:.0f} | | | |\n"
        f"| audio decoded beside the NPU | | ≥ {placed.ms_per_patch - decoder:.0f} | | | |\n"
    )
    return "".join(lines)


def _ms(one: ComponentEstimate) -> str:
    return f"{'≥ ' if one.at_best else ''}{one.ms:.0f}"


def _sources(plan: Plan) -> str:
    lines = [f"{key} {value:g}: {source}" for key, value, source in plan.figures]
    lines += [f"assumed: {each}" for each in plan.assumed]
    lines.append(
        "graphs: operations and weight bytes are counted in the exported int8 bundle "
        "([how](plan.md)); the three right columns are those of the NPU's plan"
    )
    return "\nFrom:\n\n" + "".join(f"- {line}\n" for line in lines)


def _header(columns: tuple[str, ...]) -> str:
    return f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}\n"


def _board(profile: Profile) -> str:
    providers = ", ".join(provider.name for provider in profile.providers)
    cells = (
        profile.name, profile.title, profile.soc, providers,
        f"{profile.flow.place} ({profile.flow.graphs})", profile.weights.plan, profile.kv.dtype,
        str(profile.runtime.threads), str(profile.memory.reserve_mib),
        _verified(profile),
    )  # fmt: skip
    return f"| {' | '.join(cells)} |\n"


def _verified(profile: Profile) -> str:
    if profile.verified:
        return f"yes: {profile.verified}"
    names = {"cuda": "CUDA", "tensorrt": "TensorRT"}
    wanted = [names[entry.name] for entry in profile.providers if entry.name in names]
    return "no; not verified on hardware: " + ", ".join(wanted) if wanted else "no"


def _figures(profile: Profile) -> str:
    figures = profile.figures
    cells = [_figure(getattr(figures, key)) for key in type(figures).model_fields]
    return f"| {' | '.join([profile.name, *cells])} |\n"


def _figure(figure: Figure | None) -> str:
    if figure is None:
        return ""
    thread = "/thread" if figure.per == "thread" else ""
    mark = " m" if figure.measured else " p" if figure.peak else ""
    return f"{figure.value:g}{thread}{mark}"


if __name__ == "__main__":
    TARGET.write_text(boards_page(), encoding="utf-8")
