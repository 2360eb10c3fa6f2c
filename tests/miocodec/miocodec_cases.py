"""Inputs of the MioCodec tests, from seeds that are the same on every machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from edge_runtime.golden.seeded import seeded

RATES = (44100, 24000)
SECONDS = (0.4, 3.0, 20.0, 60.0)
# The bound: of the waveform's peak.
TOLERANCE = 1e-4
VOCABULARY = 12800
LAYERS = (1, 2, 6, 9)
FOLDER = Path(__file__).parent / "goldens"
# Kept of a waveform: so many samples, evenly spread.
_KEPT = 600


def tokens_of(seconds: float, seed: int = 1) -> np.ndarray:
    count = max(1, int(seconds * 25))
    uniform = np.abs(seeded(seed, (count,))) % 1
    return (uniform * VOCABULARY).astype(np.int64)


def voice_of(width: int, seed: int = 2) -> np.ndarray:
    return seeded(seed, (width,))


def features_of(seconds: float, width: int, seed: int = 3) -> dict[int, np.ndarray]:
    """Rows that drift and jitter, by layer."""
    rows = int(seconds * 50)
    found = {}
    for layer in LAYERS:
        drift = np.cumsum(seeded(seed + layer, (rows, width)), axis=0) * np.float32(0.05)
        found[layer] = drift + seeded(seed + 100 + layer, (rows, width))
    return found


def stretched(seconds: float, rate: int) -> int:
    """A length that does not fit the tokens, so that frames are interpolated."""
    return int(len(tokens_of(seconds)) * rate / 25 * 0.983)


def digest(audio: np.ndarray) -> np.ndarray:
    """Evenly spread samples of a waveform, the first and the last among them."""
    places = np.linspace(0, len(audio) - 1, min(_KEPT, len(audio))).round().astype(np.int64)
    return audio[places]


def golden_path(name: str) -> Path:
    return FOLDER / f"{name}.npz"


def write_golden(name: str, meta: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    text = np.frombuffer(json.dumps(meta, indent=1).encode(), np.uint8)
    np.savez_compressed(golden_path(name), meta=text, **arrays)


def read_golden(name: str) -> dict[str, np.ndarray]:
    with np.load(golden_path(name)) as file:
        return {key: file[key] for key in file.files}
