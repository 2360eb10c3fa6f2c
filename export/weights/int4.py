"""4-bit blocks with searched scales, in the layout of ONNX Runtime's `MatMulNBits`.

The search is for least squared error: from a few clipping points, scale and zero point are fitted
to the codes and the codes to them, in turn. `benchmarks/int4_methods.py` compares it with others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from export.weights.quantize import blocks_of, safe_scale

FloatArray = npt.NDArray[np.float32]
ByteArray = npt.NDArray[np.uint8]

_LEVELS = 15
_IMPLIED_ZERO = 8
# Fractions of the full range that the fit starts from, and how often it is improved from each.
_STARTS = (np.float32(1.0), np.float32(0.85))
_ROUNDS = 3
# Floats per piece: the search makes a dozen passes, which should find them in the CPU's cache.
_PIECE = 1 << 15


@dataclass(frozen=True)
class Int4Blocks:
    """Quantized rows.

    Attributes:
        packed: uint8 [outputs, blocks, block / 2], low nibble first.
        scales: f32 [outputs, blocks].
        zeros: uint8 [outputs, ceil(blocks / 2)], low nibble first; None where 8 is implied.
    """

    packed: ByteArray
    scales: FloatArray
    zeros: ByteArray | None


def block_int4(rows: FloatArray, block: int, *, symmetric: bool = False) -> Int4Blocks:
    """Quantize blocks along the input axis to 4 bits.

    Args:
        rows: Weights [outputs, inputs].
        block: Inputs per block, even; the last block is padded with zeros.
        symmetric: No zero points.
    """
    blocks = blocks_of(rows, block)
    outputs, count, _ = blocks.shape
    flat = blocks.reshape(-1, block)
    codes = np.empty(flat.shape, np.uint8)
    scales, zeros = np.empty(len(flat), np.float32), np.empty(len(flat), np.uint8)
    step = max(1, _PIECE // block)
    for start in range(0, len(flat), step):
        part = slice(start, start + step)
        codes[part], scales[part], zeros[part] = _search(flat[part], symmetric)
    packed = _nibbles(codes).reshape(outputs, count, block // 2)
    by_row = zeros.reshape(outputs, count)
    if count % 2:
        by_row = np.pad(by_row, ((0, 0), (0, 1)))
    return Int4Blocks(
        packed, scales.reshape(outputs, count), None if symmetric else _nibbles(by_row)
    )


def _nibbles(codes: ByteArray) -> ByteArray:
    """Two codes per byte along the last axis."""
    packed: ByteArray = codes[..., 0::2] | (codes[..., 1::2] << np.uint8(4))
    return packed


@dataclass(frozen=True)
class _Fit:
    """Codes of some blocks, and the best scale for them.

    Attributes:
        codes: [N, block].
        scale: Of least squares, given the codes and their zero point [N].
        gain: Squared error that it saves against all zeros [N].
        free: Scale and zero point of least squares, both free [2, N].
    """

    codes: FloatArray
    scale: FloatArray
    gain: FloatArray
    free: tuple[FloatArray, FloatArray]


def _search(blocks: FloatArray, symmetric: bool) -> tuple[ByteArray, FloatArray, ByteArray]:
    """Codes 0..15 [N, block], scales [N] and zero points [N] of blocks [N, block]."""
    zero = np.full(len(blocks), _IMPLIED_ZERO, np.float32)
    if symmetric:
        index = np.abs(blocks).argmax(axis=1)[:, None]
        # The value of largest magnitude takes code 0 (-8), which 4 bits reach and +8 does not.
        full = safe_scale(np.take_along_axis(blocks, index, axis=1)[:, 0] / np.float32(-8))
    else:
        low = np.minimum(blocks.min(axis=1), 0) / np.float32(_LEVELS)
        full = safe_scale(np.maximum(blocks.max(axis=1), 0) / np.float32(_LEVELS) - low)
        zero = np.rint(np.clip(-low / full, 0, 1) * np.float32(_LEVELS))
    # In units of the full scale, so that no square overflows or vanishes.
    values = blocks / full[:, None]
    total = values.sum(axis=1)
    best_gain = np.full(len(values), -1, np.float32)
    best_scale, best_zero = np.ones_like(best_gain), zero
    for clip in _STARTS:
        scale, at = np.full(len(values), clip), zero
        for _ in range(_ROUNDS):
            fit = _fit(values, total, scale, at)
            better = fit.gain > best_gain
            best_gain = np.where(better, fit.gain, best_gain)
            best_scale = np.where(better, scale, best_scale)
            best_zero = np.where(better, at, best_zero)
            scale = fit.scale
            if not symmetric:
                scale, at = fit.free
    fit = _fit(values, total, best_scale, best_zero)
    return fit.codes.astype(np.uint8), full * fit.scale, best_zero.astype(np.uint8)


def _fit(values: FloatArray, total: FloatArray, scale: FloatArray, zero: FloatArray) -> _Fit:
    """Code values [N, block], whose sums are ``total``, and fit scale and zero point to that."""
    codes = values * (np.float32(1) / scale)[:, None]
    codes += zero[:, None]
    np.rint(codes, out=codes)
    np.clip(codes, 0, _LEVELS, out=codes)
    count = np.float32(values.shape[1])
    own = codes @ np.ones(values.shape[1], np.float32)  # whole numbers: exact in any order
    square = np.einsum("nb,nb->n", codes, codes)
    product = np.einsum("nb,nb->n", codes, values)
    above = square - zero * (2 * own - count * zero)
    along = product - zero * total
    fitted = _ratio(along, above)
    # Both free: the slope of values over codes, and the code at which it crosses zero.
    slope = _ratio(product - own * total / count, square - own * own / count)
    crossing = np.rint(np.clip((own - _ratio(total, slope)) / count, 0, _LEVELS))
    return _Fit(codes, fitted, along * fitted, (slope, crossing))


def _ratio(above: FloatArray, below: FloatArray) -> FloatArray:
    """Quotients; 1 where there is none to speak of."""
    sound = (np.abs(below) > 1e-6) & (np.abs(above) > 1e-6)
    found = np.divide(above, below, out=np.ones_like(above), where=sound)
    # Scales far off the full one lead nowhere.
    return np.where((found > 1e-2) & (found < 1e2), found, np.float32(1))
