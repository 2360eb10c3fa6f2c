"""Writes the tables of docs/plan.md: ``python docs/make_plan.py`` from the root."""

from __future__ import annotations

import runpy
import tempfile
from pathlib import Path

from device_profiles.layers import ProfileStore
from device_profiles.validation import validated
from edge_runtime.bundle import Bundle
from edge_runtime.plan.estimate import Estimate
from edge_runtime.plan.planner import Plan, Planner
from edge_runtime.plan.request import PlanRequest

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "docs/plan.md"
KNOWN = "<!-- known: python docs/make_plan.py -->\n"
PROFILES = "<!-- profiles: python docs/make_plan.py -->\n"
END = "<!-- end -->\n"


def plan_page(text: str) -> str:
    """The page with its tables made anew."""
    outline = runpy.run_path(str(ROOT / "tests/helpers/full_size_outline.py"))["full_size_outline"]
    compare = runpy.run_path(str(ROOT / "benchmarks/plan_known.py"))
    with tempfile.TemporaryDirectory() as folder:
        bundle = Bundle.open(outline(Path(folder)), verify=False)
        text = _between(text, KNOWN, compare["table"](compare["known"](bundle)))
        # Nothing that was measured here: the table must not depend on who makes it.
        return _between(text, PROFILES, _profiles(Planner(bundle, Path("/nonexistent"))))


def _profiles(planner: Planner) -> str:
    store = ProfileStore.shipped()
    lines = [
        "| profile | board needs GiB | MiB that cannot be dropped | ms per patch | first audio, s "
        "| RTF | `--preset fast`: ms per patch | as placed: ms per patch | RTF |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for file in store.candidates():
        profile = validated(store.layers(file))
        plan = planner.plan(profile, PlanRequest())
        fast = planner.plan(profile, PlanRequest(preset="fast"))
        lines.append(_row(plan, fast))
    return "\n".join(lines) + "\n"


def _row(plan: Plan, fast: Plan) -> str:
    cpu, placed = plan.cpu, plan.placed
    cells = [
        plan.profile,
        f"{plan.memory.needed_gib}",
        f"{plan.memory.anonymous_bytes / (1 << 20):.0f}",
        _ms(cpu),
        "" if cpu is None else f"{cpu.first_audio_ms / 1000:.1f}",
        "" if cpu is None else f"{cpu.rtf:.1f}",
        _ms(fast.cpu),
        _ms(placed),
        "" if placed is None else f"≥ {placed.rtf:.1f}",
    ]
    return f"| {' | '.join(cells)} |"


def _ms(times: Estimate | None) -> str:
    if times is None:
        return ""
    return f"{'≥ ' if times.at_best else ''}{times.ms_per_patch:.0f}"


def _between(text: str, start: str, inside: str) -> str:
    before, _, rest = text.partition(start)
    _, _, after = rest.partition(END)
    return f"{before}{start}\n{inside}\n{END}{after}"


if __name__ == "__main__":
    TARGET.write_text(plan_page(TARGET.read_text(encoding="utf-8")), encoding="utf-8")
