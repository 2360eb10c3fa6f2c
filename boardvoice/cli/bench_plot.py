"""A picture of a benchmark: where the time of a patch goes, and the limit of each component."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from boardvoice.cli.memory_plot import new_figure, save_figure
from edge_runtime.bench.results import BenchResult


def write_bench_plot(path: Path, result: BenchResult, before: BenchResult | None) -> None:
    """Draw the median time of every component with its 90th percentile and its limit.

    Args:
        path: Picture to write; its extension (.png, .svg, .pdf) chooses the format.
        result: What was measured.
        before: An earlier result to set beside it, or None.

    Raises:
        DependencyError: matplotlib is not installed.
        OutputError: The picture cannot be written.
    """
    figure = new_figure()
    axes = figure.subplots()
    names = list(result.components)
    places = list(range(len(names)))
    height = 0.8 if before is None else 0.4
    _bars(axes, result, names, places, height, "now" if before else "median")
    if before is not None:
        _bars(axes, before, names, [place + height for place in places], height, "before")
    limits = [
        (place, component.reached.limit_ms)
        for place, component in zip(places, result.components.values(), strict=True)
        if component.reached is not None
    ]
    axes.scatter(
        [limit for _, limit in limits], [place for place, _ in limits],
        marker="|", s=300, color="black", zorder=3, label="limit of the machine",
    )  # fmt: skip
    labels = [f"{name}\nper {result.components[name].per}" for name in names]
    axes.set_yticks(places, labels)
    axes.invert_yaxis()
    setup, machine = result.setup, result.machine
    title = f"{setup.bundle}, {setup.weights}, {setup.threads} threads, {machine.cpu}"
    axes.set(xlabel="ms (whisker: 90th percentile)", title=title)
    axes.legend()
    save_figure(figure, path)


def _bars(
    axes: Any, result: BenchResult, names: list[str], places: list[float] | list[int],
    height: float, label: str,
) -> None:  # fmt: skip
    drawn = [
        (place, result.components[name].ms)
        for place, name in zip(places, names, strict=True)
        if name in result.components
    ]
    axes.barh(
        [place for place, _ in drawn],
        [ms.p50 for _, ms in drawn],
        height,
        xerr=[[0.0 for _ in drawn], [max(ms.p90 - ms.p50, 0.0) for _, ms in drawn]],
        label=label,
    )
