"""Seeded noise: the same seed gives the same speech, whatever the chunking or streaming."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]


class Noise(Protocol):
    """Where one utterance's noise comes from. Its two methods may be called in two threads."""

    def patch(self, shape: tuple[int, int]) -> FloatArray:
        """Standard normal noise [D, P] of the next patch."""
        ...

    def decoder(self, shape: tuple[int, int, int]) -> FloatArray:
        """Standard normal noise of the next VAE noise block."""
        ...


class SeededNoise:
    """Noise from a seed, with separate streams for patches and for the VAE's noise blocks.

    Args:
        seed: Any non-negative integer.
        chunk: Index of the text chunk, so that chunks of one text differ.
    """

    def __init__(self, seed: int, chunk: int = 0) -> None:
        self._patch = np.random.Generator(np.random.PCG64([seed, chunk, 0]))
        self._decoder = np.random.Generator(np.random.PCG64([seed, chunk, 1]))

    def patch(self, shape: tuple[int, int]) -> FloatArray:
        """See `Noise.patch`."""
        return self._patch.standard_normal(shape, np.float32)

    def decoder(self, shape: tuple[int, int, int]) -> FloatArray:
        """See `Noise.decoder`."""
        return self._decoder.standard_normal(shape, np.float32)
