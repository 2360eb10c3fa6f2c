"""Recordings to make voices of."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import soundfile

RATE = 16_000


def recording(seconds: float = 1.5, seed: int = 0, peak: float = 0.4) -> np.ndarray:
    """Noise [n] float32."""
    random = np.random.default_rng(seed)
    return random.uniform(-peak, peak, round(seconds * RATE)).astype(np.float32)


def recorded(
    audio: np.ndarray | None = None, rate: int = RATE, kind: str = "WAV", **options: Any
) -> bytes:
    """The same as a file's bytes."""
    stream = io.BytesIO()
    audio = recording() if audio is None else audio
    soundfile.write(stream, audio, rate, format=kind, **options)
    return stream.getvalue()
