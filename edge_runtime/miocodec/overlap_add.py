"""Spectra to samples: the inverse short-time Fourier transform, piece by piece.

Source: `ISTFT` with "same" padding in `module/istft_head.py` of github.com/Aratako/MioCodec
(commit 7747354).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from edge_runtime.miocodec.spec import SpectrumSpec

FloatArray = npt.NDArray[np.float32]


class OverlapAdd:
    """Adds up windowed frames. However the frames are cut into pieces, the samples are the same.

    Args:
        spec: Sizes.
    """

    def __init__(self, spec: SpectrumSpec) -> None:
        self._spec = spec
        self._window = _hann(spec.n_fft)
        # Hops that a frame reaches over, and what is left over from the frames so far.
        self._reach = -(-spec.n_fft // spec.hop)
        self._rest = np.zeros((2, self._reach - 1, spec.hop), np.float32)
        self._skip = (spec.n_fft - spec.hop) // 2

    def push(self, real: FloatArray, imaginary: FloatArray) -> FloatArray:
        """Add frames [N, bins]; returns the samples that are complete now."""
        frames = np.fft.irfft(real + 1j * imaginary, self._spec.n_fft, axis=1)
        return self._fold(frames.astype(np.float32) * self._window, len(real))

    def finish(self) -> FloatArray:
        """The samples that were waiting for further frames."""
        tail = self._spec.n_fft - self._spec.hop
        samples, weights = self._rest.reshape(2, -1)[:, :tail]
        # The last frame's outer part is padding, as the first one's is.
        keep = tail - (tail // 2)
        return self._normed(samples[:keep], weights[:keep])

    def _fold(self, frames: FloatArray, count: int) -> FloatArray:
        hop, reach = self._spec.hop, self._reach
        total = np.zeros((2, count + reach - 1, hop), np.float32)
        total[:, : reach - 1] = self._rest
        padded = np.zeros((count, reach * hop), np.float32)
        padded[:, : self._spec.n_fft] = frames
        square = np.zeros(reach * hop, np.float32)
        square[: self._spec.n_fft] = self._window**2
        # The oldest frame first, as in the sums that are left over: so the cut changes no bit.
        for place in reversed(range(reach)):
            part = slice(place * hop, (place + 1) * hop)
            total[0, place : place + count] += padded[:, part]
            total[1, place : place + count] += square[part]
        self._rest = total[:, count:]
        samples, weights = total[:, :count].reshape(2, -1)
        drop = min(self._skip, samples.size)
        self._skip -= drop
        return self._normed(samples[drop:], weights[drop:])

    @staticmethod
    def _normed(samples: FloatArray, weights: FloatArray) -> FloatArray:
        normed: FloatArray = samples / weights
        return normed


def _hann(size: int) -> FloatArray:
    """A periodic Hann window."""
    angle = 2 * np.pi * np.arange(size) / size
    window: FloatArray = (0.5 - 0.5 * np.cos(angle)).astype(np.float32)
    return window
