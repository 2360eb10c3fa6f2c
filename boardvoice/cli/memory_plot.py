"""A picture of memory over time."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from edge_runtime.errors import DependencyError, OutputError
from edge_runtime.memory.guard import GuardEvent
from edge_runtime.memory.watch import MemorySample
from edge_runtime.output_file import output_file, require_writable

_MIB = 1 << 20
_REMEDY = "Name a .png, .svg or .pdf file in a folder that can be written."


def new_figure() -> Any:
    """An empty figure; matplotlib is imported only when a picture is asked for.

    Raises:
        DependencyError: matplotlib is not installed.
    """
    try:
        figures = importlib.import_module("matplotlib.figure")
    except ImportError as error:
        raise DependencyError(
            "Drawing needs the package matplotlib.", remedy="pip install matplotlib"
        ) from error
    return figures.Figure(figsize=(9, 5), layout="constrained")


def require_plotting(path: Path) -> None:
    """Refuse before the work what `save_figure` would refuse after it.

    Raises:
        DependencyError: matplotlib is not installed.
        OutputError: The picture cannot be written, or its extension names no format.
    """
    _format(new_figure(), path)
    require_writable(path, remedy=_REMEDY)


def save_figure(figure: Any, path: Path) -> None:
    """Write a picture in the format that its name says, PNG where it says none.

    Raises:
        OutputError: It cannot be written, or its extension names no format.
    """
    kind = _format(figure, path)
    with output_file(path, remedy=_REMEDY) as stream:
        figure.savefig(stream, format=kind, dpi=120)


def _format(figure: Any, path: Path) -> str:
    kind = path.suffix.lstrip(".").lower() or "png"
    if kind not in figure.canvas.get_supported_filetypes():
        raise OutputError(f"{path}: {path.suffix} is no format of pictures.", remedy=_REMEDY)
    return kind


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
    start = samples[0].seconds
    times = [sample.seconds - start for sample in samples]
    figure = new_figure()
    axes = figure.subplots()
    axes.plot(times, [sample.file / _MIB for sample in samples], label="file-backed")
    axes.plot(times, [sample.anonymous / _MIB for sample in samples], label="anonymous")
    axes.plot(times, [sample.gauges["kv"] / _MIB for sample in samples], label="KV")
    for event in events:
        axes.axvline(event.seconds - start, color="red", linestyle=":")
        axes.text(event.seconds - start, 0, event.detail, rotation=90, fontsize=7, va="bottom")
    axes.set(xlabel="seconds", ylabel="MiB", ylim=(0, None))
    axes.legend()
    save_figure(figure, path)
