"""Draws the logs of a state folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_PANELS = (
    ("codec.jsonl", "decoder", ("log", "mel", "convergence", "complex")),
    ("encoder.jsonl", "encoder: squared error of latents", ("error",)),
    ("voice.jsonl", "voice", ("flow", "patch", "phoneme", "guide", "stop")),
    ("voice.jsonl", "held-out flow loss (gate 2)", ("held_flow", "held_wrong_flow")),
)


def read_log(path: Path) -> list[dict[str, Any]]:
    """Lines of a log; where a resumed run did steps again, the later line counts."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    by_step = {entry["step"]: entry for entry in map(json.loads, lines)}
    return [by_step[step] for step in sorted(by_step)]


def draw(state: Path, picture: Path) -> None:
    """Write a picture of all losses over steps; needs matplotlib."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 7), layout="constrained")
    for axes, (name, title, keys) in zip(figure.subplots(2, 2).flat, _PANELS, strict=True):
        log = read_log(state / name)
        for key in keys:
            points = [(entry["step"], entry[key]) for entry in log if key in entry]
            if points:
                axes.plot(*zip(*points, strict=True), label=key.replace("_", " "))
        axes.set_title(title)
        axes.set_xlabel("step")
        axes.set_yscale("log")
        axes.grid(visible=True, alpha=0.3)
        if axes.lines:
            axes.legend()
    figure.savefig(picture)
