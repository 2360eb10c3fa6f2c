"""Golden files: one recorded official run each, small enough to keep."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from parity_cases import FULL_RECIPES, GOLDEN_ALL_MODES, MODES, FloatArray
from parity_run import Run

FOLDER = Path(__file__).parent / "goldens"
# Every such sample of the waveform is kept; a prime, so that it meets every phase of the decoder.
_STRIDE = 97

CASES = [
    (recipe, mode)
    for recipe in FULL_RECIPES
    for mode in MODES
    if mode == "zero-shot" or recipe in GOLDEN_ALL_MODES
]


@dataclass(frozen=True)
class Golden:
    """What a file holds.

    Attributes:
        meta: Versions, seeds and margins of the recorded run.
        arrays: Values by name, see `digest`.
    """

    meta: dict[str, Any]
    arrays: dict[str, FloatArray]


def digest(run: Run) -> dict[str, FloatArray]:
    """The values of a run that a golden file keeps; ``rms`` is that of each patch's samples."""
    patches = run.audio.reshape(len(run.latents), -1).astype(np.float64)
    return {
        **{f"{name}_encoding": patches for name, patches in run.encodings.items()},
        "hidden": run.hidden[-1],
        "residual": run.residual,
        "latents": run.latents,
        "stop_logits": run.stop_logits,
        "samples": run.audio[::_STRIDE],
        "rms": np.sqrt(np.square(patches).mean(axis=1)).astype(np.float32),
    }


def path_of(recipe: str, mode: str) -> Path:
    """File of a case."""
    return FOLDER / f"{recipe}.{mode}.npz"


def write(path: Path, golden: Golden) -> None:
    """Write a file."""
    meta = np.frombuffer(json.dumps(golden.meta, indent=1).encode(), np.uint8)
    np.savez_compressed(path, meta=meta, **golden.arrays)


def read(path: Path) -> Golden:
    """Read a file."""
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    return Golden(json.loads(arrays.pop("meta").tobytes()), arrays)
