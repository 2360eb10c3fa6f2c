"""Times that somebody measured beside what the model of `boardvoice plan` says. Prints Markdown.

    python benchmarks/plan_known.py [BUNDLE]

BUNDLE is a full-size int8 bundle; its weights are not read, so the outline that tests use will do,
and is taken by default. What is known of each system, and what is not, is said in docs/plan.md.
"""

from __future__ import annotations

import argparse
import json
import runpy
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from device_profiles.figures import Figure, FiguresSection
from device_profiles.layers import ProfileStore
from device_profiles.schema import Profile
from device_profiles.validation import validated
from edge_runtime.bench.work import Work, graph_work
from edge_runtime.bundle import Bundle
from edge_runtime.plan.estimate import Estimate, estimate, reformatted
from edge_runtime.plan.request import Attention, FamilyPlan, PlannedRun, PlanRequest
from edge_runtime.plan.speeds import speeds_of
from edge_runtime.voxcpm2 import plan as family_plan

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "docs/benchmarks/full-int8-epyc-2.json"
# 8 bits in blocks of 32, with larger scales than q8_0 has: 9 bits per weight instead of 8.5.
_Q8_0 = {"int8": "int8-32", "int8-128": "int8-32"}
# The seed: 8192 rows in f32, of which each step moves 2.4 GB: all of it, four times over.
_SEED_PASSES, _SEED_ROWS = 4, 8192


@dataclass(frozen=True)
class Known:
    """One figure, measured and modelled.

    Attributes:
        name: What it is.
        measured: Milliseconds that were measured.
        modelled: Milliseconds that the model says.
    """

    name: str
    measured: float
    modelled: float

    @property
    def deviation(self) -> float:
        """Of the model from the measurement, as a share of it."""
        return self.modelled / self.measured - 1


class Model:
    """The model on one bundle, with the changes that other systems need.

    Args:
        bundle: A full-size int8 bundle.
    """

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self._counted: dict[object, Work] = {}

    def times(
        self,
        profile: Profile,
        request: PlanRequest,
        *,
        formats: dict[str, str] | None = None,
        change: Callable[[FamilyPlan], FamilyPlan] = lambda plan: plan,
    ) -> Estimate:
        """Times on the CPU."""
        speeds = speeds_of(profile, "cpu", request.threads)
        plan = change(family_plan(self._bundle.manifest.model, profile, request))

        def count(run: PlannedRun) -> Work:
            work = self._count(run)
            return reformatted(work, formats) if formats else work

        return estimate(plan, count, lambda _: speeds, request.patches)

    def _count(self, run: PlannedRun) -> Work:
        file = self._bundle.graphs()[run.graph]
        key = file, tuple(run.shapes.items())
        if key not in self._counted:
            self._counted[key] = graph_work(self._bundle.path(file), run.shapes)
        return self._counted[key]


def whole_cache(plan: FamilyPlan) -> FamilyPlan:
    """Every step moves a cache of 8192 rows in f32 four times, however many rows are valid."""
    rows = 2 * 36 * 2 * 128 * 4 * _SEED_ROWS
    moved = Attention(read_bytes=_SEED_PASSES * rows)
    runs = (replace(run, attention=moved) if run.component == "lm_step" else run
            for run in plan.runs)  # fmt: skip
    return replace(plan, runs=tuple(runs))


def known(bundle: Bundle) -> Iterator[Known]:
    """Every figure there is."""
    model = Model(bundle)
    yield from _own(model)
    profile = _profile("x86-vnni")
    request = PlanRequest(patches=10, threads=1)
    ms = model.times(profile, request).ms_per_patch
    yield Known("boardvoice, same machine, 1 thread: ms per patch", 308, ms)
    ms = model.times(_profile("x86-avx2"), replace(request, threads=2), formats=_Q8_0).ms_per_patch
    yield Known("audio.cpp q8_0, AVX2, 2 threads: ms per patch", 1600, ms)
    for name, board, threads, measured in (
        ("seed, q8_0, RK3588: ms per patch", "rk3588-generic", None, 1114),
        ("seed, q8_0, x86, 4 threads: ms per patch", "x86-avx2", 4, 750),
    ):
        request = PlanRequest(patches=10, threads=threads)
        ms = model.times(_profile(board), request, formats=_Q8_0, change=whole_cache).ms_per_patch
        yield Known(name, measured, ms)


def _own(model: Model) -> Iterator[Known]:
    """This project's own result, with the speeds that its probe found in the same run."""
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    setup, probe = result["setup"], result["probe"]

    def figure(value: float) -> Figure:
        return Figure(value=value, measured=True, source=RESULT.name)

    figures = FiguresSection(
        memory_gb_s=figure(probe["read_gbs"]),
        cpu_f32_gflops=figure(probe["gflops"]["f32"]),
        cpu_int8_gops=figure(probe["gflops"]["int8"]),
        cpu_int8_blocks_gops=figure(probe["gflops"]["int8-128"]),
    )
    profile = _profile("x86-vnni").model_copy(update={"figures": figures})
    request = PlanRequest(text_rows=setup["prefix_rows"], patches=setup["patches"])
    times = model.times(profile, request)
    where = "boardvoice, EPYC, 2 threads"
    yield Known(f"{where}: ms per patch", result["patch_ms"]["p50"], times.ms_per_patch)
    yield Known(f"{where}: first audio", result["first_audio_ms"]["p50"], times.first_audio_ms)
    for one in times.components:
        measured = result["components"].get(one.name)
        if measured is not None:
            # Parts run beside each other after the first patch, which makes each look longer.
            shortest = measured["ms"]["min"]
            yield Known(f"{where}: {one.name}, shortest", shortest, one.ms)


def _profile(name: str) -> Profile:
    store = ProfileStore.shipped()
    return next(validated(store.layers(file)) for file in store.candidates() if file.name == name)


def table(found: Iterator[Known]) -> str:
    """The figures as a Markdown table."""
    lines = ["| | measured | model | deviation |", "|---|---|---|---|"]
    lines += [
        f"| {one.name} | {one.measured:.0f} | {one.modelled:.0f} | {one.deviation:+.0%} |"
        for one in found
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", nargs="?")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.bundle is None:
            helper = runpy.run_path(str(ROOT / "tests/helpers/full_size_outline.py"))
            arguments.bundle = helper["full_size_outline"](Path(folder))
        print(table(known(Bundle.open(arguments.bundle, verify=False))))


if __name__ == "__main__":
    main()
