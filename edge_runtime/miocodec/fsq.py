"""Finite scalar quantization: latents to tokens and back.

Source: arXiv:2309.15505, and `module/fsq.py` of github.com/Aratako/MioCodec (commit 7747354).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]
TokenArray = npt.NDArray[np.int32]

# The outermost values are pulled in by this share, so that they round to the outermost levels.
_SHRINK = 1e-3


@dataclass(frozen=True)
class Quantizer:
    """A grid of values; a token numbers a point of it, the first dimension running fastest.

    Attributes:
        levels: Values per dimension.
    """

    levels: tuple[int, ...]

    @cached_property
    def _basis(self) -> npt.NDArray[np.int64]:
        return np.cumprod([1, *self.levels[:-1]], dtype=np.int64)

    @cached_property
    def _half(self) -> npt.NDArray[np.int64]:
        return np.array([level // 2 for level in self.levels], np.int64)

    def tokens(self, latents: FloatArray) -> TokenArray:
        """Tokens [N] of latents [N, dimensions]."""
        points = np.rint(self.bounded(latents)).astype(np.int64) + self._half
        found: TokenArray = (points * self._basis).sum(axis=1).astype(np.int32)
        return found

    def bounded(self, latents: FloatArray) -> FloatArray:
        """Latents as they are before rounding; half-way values lie on a rounding edge."""
        levels = np.array(self.levels, np.float32)
        half = (levels - 1) * np.float32(1 - _SHRINK) / 2
        offset = np.where(levels % 2 == 0, np.float32(0.5), np.float32(0))
        shift = np.tan(offset / half)
        return (np.tanh(latents + shift) * half - offset).astype(np.float32)

    def codes(self, tokens: npt.NDArray[np.integer]) -> FloatArray:
        """Points [N, dimensions] of tokens [N], within -1..1."""
        digits = tokens.astype(np.int64)[:, None] // self._basis % np.array(self.levels)
        codes: FloatArray = ((digits - self._half) / self._half).astype(np.float32)
        return codes
