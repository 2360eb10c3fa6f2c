"""Smaller forms of a layer's rows: f16, and 8-bit integers in ONNX Runtime's layouts.

Layouts: `DynamicQuantizeMatMul` and `MatMulNBits` in ONNX Runtime's ContribOperators.md.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from edge_runtime.errors import UnsupportedError

FloatArray = npt.NDArray[np.float32]
ByteArray = npt.NDArray[np.uint8]

# Below it (and near the smallest normal f32) a scale is too coarse to divide by.
_LEAST_SCALE = np.float32(1e-30)


def half(rows: FloatArray, name: str) -> npt.NDArray[np.float16]:
    """Round to f16.

    Raises:
        UnsupportedError: A value of ``name`` would become infinite.
    """
    with np.errstate(over="ignore"):
        rounded = rows.astype(np.float16)
    if not np.isfinite(rounded).all():
        raise UnsupportedError(
            f"{name} has values beyond what f16 can hold.", remedy="Export with --weights f32."
        )
    return rounded


def per_channel_int8(rows: FloatArray) -> tuple[npt.NDArray[np.int8], FloatArray]:
    """Quantize each output channel on its own.

    Args:
        rows: Weights [outputs, inputs].

    Returns:
        int8 [outputs, inputs] within ±127, and the f32 scale of each output.
    """
    scale = safe_scale(np.abs(rows).max(axis=1) / np.float32(127))
    quantized = np.rint(rows / scale[:, None]).astype(np.int8)
    return quantized, scale


def block_int8(rows: FloatArray, block: int) -> tuple[npt.NDArray[np.uint8], FloatArray]:
    """Quantize blocks along the input axis to 8 bits with an implied zero point of 128.

    Args:
        rows: Weights [outputs, inputs].
        block: Inputs per block; the last block is padded with zeros.

    Returns:
        uint8 [outputs, blocks, block] and f32 scales [outputs, blocks].
    """
    blocks = blocks_of(rows, block)
    scale = safe_scale(np.abs(blocks).max(axis=2) / np.float32(127))
    quantized = np.rint(blocks / scale[..., None]) + np.float32(128)
    return quantized.astype(np.uint8), scale


def block_uint8(rows: FloatArray, block: int) -> tuple[ByteArray, FloatArray, ByteArray]:
    """Quantize blocks along the input axis to 8 bits that span each block's own range and zero.

    Args:
        rows: Weights [outputs, inputs].
        block: Inputs per block; the last block is padded with zeros.

    Returns:
        uint8 [outputs, blocks, block], f32 scales and uint8 zero points [outputs, blocks].
    """
    blocks = blocks_of(rows, block)
    # Divided first: the span of a block may be more than f32 holds.
    low = np.minimum(blocks.min(axis=2), 0) / np.float32(255)
    scale = safe_scale(np.maximum(blocks.max(axis=2), 0) / np.float32(255) - low)
    zero = np.rint(np.clip(-low / scale, 0, 1) * np.float32(255))
    codes = np.rint(blocks / scale[..., None])
    codes += zero[..., None]
    np.clip(codes, 0, 255, out=codes)
    return codes.astype(np.uint8), scale, zero.astype(np.uint8)


def safe_scale(scale: FloatArray) -> FloatArray:
    """Scales as they are; 1 where all values are zero, or so small that their quotient is not."""
    return np.where(np.abs(scale) >= _LEAST_SCALE, scale, np.float32(1)).astype(np.float32)


def blocks_of(rows: FloatArray, block: int) -> FloatArray:
    """Rows [outputs, inputs], padded with zeros, as [outputs, blocks, block]."""
    outputs, inputs = rows.shape
    count = -(-inputs // block)
    if count * block != inputs:
        rows = np.pad(rows, ((0, 0), (0, count * block - inputs)))
    return rows.reshape(outputs, count, block)
