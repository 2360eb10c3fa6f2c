"""The same graph over an int8 KV cache: a quarter of the memory per row, one scale per channel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

FloatArray = npt.NDArray[np.float32]

_ATTENTION = "GroupQueryAttention"
_PAST = (3, 4)
# Position ids, attention bias and head sink stand between the rotary tables and the scales.
_SCALES = 12
_LARGEST = 127
# A channel that was silent while ranges were measured gets this share of its head's range.
_LEAST_SHARE = 1 / 32


@dataclass
class KVRanges:
    """Largest magnitudes of each channel of a cache, by name of the buffer's input.

    Rotation turns pairs of a key's channels into each other, further with every position. Their
    range is the pair's length, which no position changes: rows seen at the front of a cache speak
    for all others.

    Attributes:
        rotary: Names of the buffers that hold rotated keys.
        largest: [heads, head size] by name.
        rows: Rows seen.
    """

    rotary: frozenset[str]
    largest: dict[str, FloatArray] = field(default_factory=dict)
    rows: int = 0

    @staticmethod
    def of(model: onnx.ModelProto) -> KVRanges:
        """Empty ranges for a graph of cached attention layers."""
        rotated = (
            node.input[_PAST[0]]
            for node in model.graph.node
            if node.op_type == _ATTENTION
            and any(one.name == "do_rotary" and one.i for one in node.attribute)
        )
        return KVRanges(frozenset(rotated))

    def observe(self, buffers: Mapping[str, FloatArray], rows: int) -> None:
        """Take in the valid rows of f32 buffers [1, heads, capacity, head size]."""
        for name, buffer in buffers.items():
            valid = buffer[0, :, :rows]
            if name in self.rotary:
                # Channel i turns with channel i + size / 2.
                length = np.hypot(*np.split(valid, 2, axis=-1))
                found = np.concatenate([length, length], axis=-1).max(axis=1)
            else:
                found = np.abs(valid).max(axis=1)
            before = self.largest.get(name)
            self.largest[name] = found if before is None else np.maximum(before, found)
        self.rows += rows

    def scale(self, name: str, margin: float) -> FloatArray:
        """Value of one step [1, heads, 1, head size].

        Args:
            name: Buffer.
            margin: Range over largest magnitude seen.
        """
        largest = self.largest[name]
        least = np.maximum(largest.max(axis=-1, keepdims=True) * _LEAST_SHARE, 1e-6)
        scale: FloatArray = np.maximum(largest, least) * np.float32(margin / _LARGEST)
        return scale[None, :, None, :].astype(np.float32)


def with_int8_cache(model: onnx.ModelProto, ranges: KVRanges, margin: float) -> onnx.ModelProto:
    """Copy a graph of cached attention layers and give it an int8 cache.

    The attention kernel rounds keys (after rotation) and values to int8 when it stores them and
    saturates at ±127 steps. The weights are the same file's.

    Args:
        model: Graph whose cache is f32.
        ranges: Of every buffer.
        margin: Range of int8 over the largest magnitude seen.

    Returns:
        A graph whose ``past_*`` and ``present_*`` ports are int8. ONNX Runtime runs it from
        version 1.32 on.
    """
    result = onnx.ModelProto()
    result.CopyFrom(model)
    ports: set[str] = set()
    for node in result.graph.node:
        if node.op_type != _ATTENTION:
            continue
        past = [node.input[index] for index in _PAST]
        ports.update(past, node.output[1:])
        node.input.extend([""] * (_SCALES - len(node.input)))
        for name in past:
            scale = numpy_helper.from_array(ranges.scale(name, margin), f"{name}.scale")
            result.graph.initializer.append(scale)
            node.input.append(scale.name)
        for key, value in (
            ("k_quant_type", "PER_CHANNEL"),
            ("v_quant_type", "PER_CHANNEL"),
            ("kv_cache_bit_width", 8),
        ):
            node.attribute.append(helper.make_attribute(key, value))
    for port in (*result.graph.input, *result.graph.output):
        if port.name in ports:
            port.type.tensor_type.elem_type = TensorProto.INT8
    return result
