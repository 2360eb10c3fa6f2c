"""LongRoPE tables. Source: `MiniCPMLongRoPE` of voxcpm 2.0.3, after arXiv:2402.13753."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from export.checkpoint.tensor_source import FloatArray


@dataclass(frozen=True)
class RopeSpec:
    """Frequencies of one rotary embedding.

    Attributes:
        head_size: Dimensions that are rotated, in two halves.
        theta: Base.
        long_factor: Divisors used when the model is longer than it was first trained.
        short_factor: Divisors used otherwise.
        original_max_positions: Length of that first training.
        max_positions: Length the model is built for; it decides long or short for all positions.
    """

    head_size: int
    theta: float
    long_factor: tuple[float, ...]
    short_factor: tuple[float, ...]
    original_max_positions: int
    max_positions: int

    @property
    def amplitude(self) -> float:
        """Factor on both cosine and sine."""
        ratio = self.max_positions / self.original_max_positions
        square = 1 + math.log(ratio) / math.log(self.original_max_positions)
        return math.sqrt(max(square, 0.0))

    def tables(self, positions: int) -> tuple[FloatArray, FloatArray]:
        """Cosines and sines of the first ``positions``, each [positions, head_size / 2]."""
        exponent = np.arange(0, self.head_size, 2, dtype=np.float32) / np.float32(self.head_size)
        inverse = (1.0 / np.power(np.float64(self.theta), exponent.astype(np.float64))).astype(
            np.float32
        )
        longer = self.max_positions > self.original_max_positions
        factor = np.asarray(self.long_factor if longer else self.short_factor, np.float32)
        # The reference rounds to f32 after each product; the same order keeps the angles equal.
        angle = np.outer(np.arange(positions, dtype=np.float32), np.float32(1) / factor) * inverse
        wide = angle.astype(np.float64)
        amplitude = np.float32(self.amplitude)
        cosine = np.cos(wide).astype(np.float32) * amplitude
        return cosine, np.sin(wide).astype(np.float32) * amplitude
