"""A picture of memory over time."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from edge_runtime.atomic import atomic_file
from edge_runtime.errors import DependencyError, OutputError
from edge_runtime.memory.guard import GuardEvent
from edge_runtime.memory.watch import MemorySample

_MIB = 1 << 20


def require_plotting() -> Any:
    """matplotlib's figures, imported only when a picture is asked for.

    Raises:
        DependencyError: matplotlib is not installed.
    """
    try:
        return importlib.import_module("matplotlib.figure")
    except ImportError as error:
        raise DependencyError(
            "Drawing needs the package matplotlib.", remedy="pip install matplotlib"
        ) from error


def write_plot(path: Path, samples: Sequence[MemorySample], events: Iterable[GuardEvent]) -> None:
    """Draw anonymous, file-backed and KV memory, with the guard's events as marks.

    Args:
        path: Picture to write; its extension (.png, .svg, .pdf) chooses the format.
        samples: At least one.
        events: What the guard did.

    Raises:
        DependencyError: matplotlib is not installed.
        OutputError: The picture cannot be written.
    """
    figure_module = require_plotting()
    start = samples[0].seconds
    times = [sample.seconds - start for sample in samples]
    figure = figure_module.Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots()
    axes.plot(times, [sample.file / _MIB for sample in samples], label="file-backed")
    axes.plot(times, [sample.anonymous / _MIB for sample in samples], label="anonymous")
    axes.plot(times, [sample.gauges["kv"] / _MIB for sample in samples], label="KV")
    for event in events:
        axes.axvline(event.seconds - start, color="red", linestyle=":")
        axes.text(event.seconds - start, 0, event.detail, rotation=90, fontsize=7, va="bottom")
    axes.set(xlabel="seconds", ylabel="MiB", ylim=(0, None))
    axes.legend()
    try:
        with atomic_file(path) as stream:
            figure.savefig(stream, format=path.suffix.lstrip(".") or "png", dpi=120)
    except (OSError, ValueError) as error:
        raise OutputError(
            f"{path} cannot be written: {error}.", remedy="Name a .png, .svg or .pdf file."
        ) from error
