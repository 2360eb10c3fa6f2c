"""Values from a seed that are the same bits on every machine and in every numpy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

# SplitMix64 (Steele, Lea, Flood 2014). numpy's own generators may change between versions.
_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX = ((30, np.uint64(0xBF58476D1CE4E5B9)), (27, np.uint64(0x94D049BB133111EB)))
_LAST = np.uint64(31)
_PARTS = 4
_MASK = np.uint64(0xFFFF)
# The sum of four even 16-bit integers: its mean, and its standard deviation of 65536 / sqrt(3).
_MEAN = _PARTS * 65535 // 2
_DEVIATION = np.float32(65536 / 3**0.5)


def seeded(seed: int, shape: tuple[int, ...], scale: float = 1.0) -> npt.NDArray[np.float32]:
    """Nearly normal values with mean 0, within ±3.5 standard deviations.

    Args:
        seed: 0 to 2**63 - 1.
        shape: Of the result.
        scale: Standard deviation.
    """
    count = int(np.prod(shape, dtype=np.int64))
    # Unsigned numbers wrap around, which is what is wanted.
    words = np.uint64(seed) + _STEP * np.arange(1, count + 1, dtype=np.uint64)
    for shift, factor in _MIX:
        words = (words ^ (words >> np.uint64(shift))) * factor
    words ^= words >> _LAST
    total = np.zeros(count, np.int64)
    for part in range(_PARTS):
        total += ((words >> np.uint64(16 * part)) & _MASK).astype(np.int64)
    # Whole numbers below 2**24 are exact in f32; so is one rounding of their quotient.
    values = (total - _MEAN).astype(np.float32) / _DEVIATION * np.float32(scale)
    return values.reshape(shape).astype(np.float32)
