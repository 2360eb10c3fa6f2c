"""Values of a synthetic tensor: seeded by its name, drawn in blocks, the same on every machine."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from export.synthetic.tensors import TensorSpec

# Elements per block; even, because one 64-bit draw makes two elements.
BLOCK = 1 << 20
# A value is the sum of four random bytes: close to a normal curve, and exact integer arithmetic,
# so no machine's maths library can change it.
_CENTRE = 4 * 255 / 2
_SIGMA = math.sqrt(4 * (256**2 - 1) / 12)
_EVEN_BYTES = np.uint32(0x00FF00FF)
_LOW_HALF = np.uint32(0xFFFF)
_GO_ON = 5.0


def value_blocks(spec: TensorSpec, seed: int) -> Iterator[npt.NDArray[np.generic]]:
    """Yield the tensor's values in storage order.

    Args:
        spec: The tensor.
        seed: Seed of the whole checkpoint, 0 or more.

    Yields:
        Flat blocks of at most ``BLOCK`` elements: float32, or int32 for a constant.
    """
    if spec.kind == "constant":
        yield np.asarray(spec.values, dtype=np.int32)
        return
    mean, std = _moments(spec)
    if spec.kind == "stop":
        yield _stop_head(spec, seed, std)
        return
    generator = _generator(spec, seed)
    for start in range(0, spec.count, BLOCK):
        yield _draw(generator, min(BLOCK, spec.count - start), mean, std)


def _moments(spec: TensorSpec) -> tuple[float, float]:
    """Mean and standard deviation that keep activations near unit size."""
    fan_in = math.prod(spec.shape[1:]) or 1
    gain = spec.gain
    if spec.kind in ("weight", "direction", "stop"):
        return 0.0, gain / math.sqrt(fan_in)
    if spec.kind == "scale":
        return gain, 0.055 * gain
    if spec.kind == "alpha":
        return gain, 0.1 * gain
    if spec.kind == "magnitude":
        return gain, 0.05 * gain
    if spec.kind == "bias":
        return 0.0, 0.05 * gain
    return 0.0, gain


def _generator(spec: TensorSpec, seed: int) -> np.random.SFC64:
    # NumPy keeps the raw stream of a bit generator stable, unlike its distributions.
    return np.random.SFC64(np.random.SeedSequence([seed, zlib.crc32(spec.name.encode())]))


def _draw(
    generator: np.random.SFC64, count: int, mean: float, std: float
) -> npt.NDArray[np.float32]:
    raw = np.asarray(generator.random_raw((count + 1) // 2), dtype="<u8").view("<u4")
    sums = raw >> np.uint32(8)
    sums &= _EVEN_BYTES
    raw &= _EVEN_BYTES
    raw += sums
    np.right_shift(raw, np.uint32(16), out=sums)
    raw &= _LOW_HALF
    raw += sums
    values: npt.NDArray[np.float32] = raw[:count].astype(np.float32)
    values -= np.float32(_CENTRE)
    values *= np.float32(std / _SIGMA)
    if mean:
        values += np.float32(mean)
    return values


def _stop_head(spec: TensorSpec, seed: int, std: float) -> npt.NDArray[np.float32]:
    """Rows "go on" and "stop".

    SiLU's output has a positive mean, so a slightly larger first row makes "go on" the usual
    answer while the hidden state still decides, at every hidden size.
    """
    rows = _draw(_generator(spec, seed), spec.count, 0.0, std).reshape(spec.shape)
    rows[0] += np.float32(_GO_ON / spec.shape[1])
    return rows.ravel()
