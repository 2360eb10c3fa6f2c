"""Resampling by a windowed sinc, as the codec was trained with.

The tokens follow from these samples, so this filter is part of the model: soxr's, which is
steeper, gives some other tokens (docs/miocodec.md).

Source: `torchaudio.functional.resample` with its defaults (six zero crossings, roll-off 0.99,
Hann window).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]

_CROSSINGS = 6
_ROLL_OFF = 0.99
# Numbers of one product's left side: 4 MiB.
_PRODUCT = 1 << 20


def sinc_resample(samples: FloatArray, rate: int, wanted: int) -> FloatArray:
    """Resample.

    Args:
        samples: f32 [n] at ``rate``.
        rate: In Hz.
        wanted: In Hz.

    Returns:
        f32 [ceil(n * wanted / rate)].
    """
    if rate == wanted:
        return samples
    common = math.gcd(rate, wanted)
    old, new = rate // common, wanted // common
    kernels, width = _kernels(old, new)
    count = math.ceil(new * len(samples) / old)
    padded = np.pad(samples, (width, width + old))
    frames = (len(padded) - kernels.shape[1]) // old + 1
    views = np.lib.stride_tricks.sliding_window_view(padded, kernels.shape[1])[::old][:frames]
    result = np.empty((frames, new), np.float32)
    step = max(1, _PRODUCT // kernels.shape[1])
    for start in range(0, frames, step):
        result[start : start + step] = views[start : start + step] @ kernels.T
    return result.reshape(-1)[:count]


def _kernels(old: int, new: int) -> tuple[FloatArray, int]:
    """A filter [new, taps] per output phase, and the samples that they reach to the left."""
    base = min(old, new) * _ROLL_OFF
    width = math.ceil(_CROSSINGS * old / base)
    places = np.arange(-width, width + old, dtype=np.float64) / old
    # The reference has the phases in f32.
    phases = (np.arange(0, -new, -1).astype(np.float32) / np.float32(new)).astype(np.float64)
    times = np.clip((phases[:, None] + places) * base, -_CROSSINGS, _CROSSINGS)
    window = np.cos(times * math.pi / _CROSSINGS / 2) ** 2
    kernels = np.sinc(times) * window * (base / old)
    return kernels.astype(np.float32), width
