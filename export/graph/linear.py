"""Linear layers in every weight format, read from the checkpoint in blocks of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from device_profiles.weight_formats import LayerKind, WeightFormat
from export.graph.builder import MICROSOFT, GraphBuilder
from export.weights.int4 import block_int4
from export.weights.quantize import block_int8, block_uint8, half, per_channel_int8

FloatArray = npt.NDArray[np.float32]
# Floats held at once while a layer is converted: 16 MiB in f32, a few times that in transit.
_PIECE = 4 * 1024 * 1024

# Rows of zeros are divided by it.
_LEAST_ROW = np.float32(1e-30)


@dataclass(frozen=True)
class LinearWeight:
    """Rows of a linear layer, in torch's layout, without holding them.

    Attributes:
        outputs: Number of rows.
        inputs: Number of columns.
        rows: Returns rows ``start:stop`` as f32 [stop - start, inputs].
    """

    outputs: int
    inputs: int
    rows: Callable[[int, int], FloatArray]

    def pieces(self) -> Iterator[tuple[int, FloatArray]]:
        """Consecutive blocks of rows with the index of their first row."""
        step = max(1, _PIECE // self.inputs)
        for start in range(0, self.outputs, step):
            yield start, self.rows(start, min(start + step, self.outputs))

    @staticmethod
    def stacked(*parts: LinearWeight) -> LinearWeight:
        """One layer that computes several at once (fused QKV, fused gate and up)."""
        bounds = np.cumsum([0, *(part.outputs for part in parts)])

        def rows(start: int, stop: int) -> FloatArray:
            found = [
                part.rows(max(start - low, 0), min(stop - low, part.outputs))
                for part, low in zip(parts, bounds[:-1].tolist(), strict=True)
                if start < low + part.outputs and stop > low
            ]
            return found[0] if len(found) == 1 else np.concatenate(found)

        return LinearWeight(int(bounds[-1]), parts[0].inputs, rows)


def linear(
    graph: GraphBuilder,
    value: str,
    weight: LinearWeight,
    kind: LayerKind,
    *,
    bias: FloatArray | None = None,
    name: str = "linear",
) -> str:
    """Emit ``value @ weight.T + bias`` in the format that the plan has for ``kind``.

    Args:
        graph: Graph under construction.
        value: Input value [..., inputs].
        weight: Weights in torch's layout [outputs, inputs].
        kind: Layer kind, which decides the weight format.
        bias: f32 [outputs] or None.
        name: Name of the result.

    Returns:
        Name of the result [..., outputs].
    """
    emit = {
        WeightFormat.F32: _float,
        WeightFormat.F16: _float,
        WeightFormat.INT8: _dynamic_int8,
        WeightFormat.INT8_ROWS: _dynamic_int8_by_row,
    }.get(graph.plan[kind], _block)
    with graph.scope(name):
        result = emit(graph, value, weight, graph.plan[kind])
        if bias is not None:
            result = graph.node("Add", [result, graph.weight(bias, "bias")], name="biased")
    return result


def _float(graph: GraphBuilder, value: str, weight: LinearWeight, format_: WeightFormat) -> str:
    dtype = np.float32 if format_ is WeightFormat.F32 else np.float16
    matrix = np.empty((weight.inputs, weight.outputs), dtype)
    for start, rows in weight.pieces():
        values = half(rows, graph.place) if dtype == np.float16 else rows
        matrix[:, start : start + len(rows)] = values.T
    stored = graph.weight(matrix)
    if dtype == np.float16:
        # x86 and most boards have no f16 matrix product: folded to f32 once, at load.
        stored = graph.node("Cast", [stored], to=1, name="weight_f32")
    return graph.node("MatMul", [value, stored], name="product")


def _dynamic_int8(
    graph: GraphBuilder, value: str, weight: LinearWeight, _format: WeightFormat
) -> str:
    matrix = np.empty((weight.inputs, weight.outputs), np.int8)
    scales = np.empty(weight.outputs, np.float32)
    for start, rows in weight.pieces():
        quantized, scale = per_channel_int8(rows)
        matrix[:, start : start + len(rows)] = quantized.T
        scales[start : start + len(rows)] = scale
    inputs = [value, graph.weight(matrix), graph.weight(scales, "scale")]
    return graph.node("DynamicQuantizeMatMul", inputs, domain=MICROSOFT, name="product")


def _dynamic_int8_by_row(
    graph: GraphBuilder, value: str, weight: LinearWeight, format_: WeightFormat
) -> str:
    """Rows brought to a largest magnitude of 1 and back: the operator has one scale for all."""
    magnitude = graph.node("Abs", [value], name="magnitude")
    largest = graph.node("ReduceMax", [magnitude, graph.axes(-1)], keepdims=1, name="largest")
    least = graph.constant(_LEAST_ROW, np.float32, "least")
    size = graph.node("Max", [largest, least], name="size")
    rows = graph.node("Div", [value, size], name="rows")
    product = _dynamic_int8(graph, rows, weight, format_)
    return graph.node("Mul", [product, size], name="sized")


def _block(graph: GraphBuilder, value: str, weight: LinearWeight, format_: WeightFormat) -> str:
    bits = format_.bits
    block = format_.block if weight.inputs >= format_.block else 32
    # 8-bit blocks of 32 have zero points whatever the layer asked for, so that a graph's reader can
    # tell a format by its bits and blocks.
    symmetric = format_.symmetric and (bits, block) != (8, 32)
    count = -(-weight.inputs // block)
    packed = block * bits // 8
    scales = np.empty((weight.outputs, count), np.float32)
    zeros = np.empty((weight.outputs, -(-count * bits // 8)), np.uint8)

    def pieces() -> Iterator[npt.NDArray[np.generic]]:
        for start, rows in weight.pieces():
            part = slice(start, start + len(rows))
            if bits == 4:
                found = block_int4(rows, block, symmetric=symmetric)
                codes, scales[part] = found.packed, found.scales
                if found.zeros is not None:
                    zeros[part] = found.zeros
            elif symmetric:
                codes, scales[part] = block_int8(rows, block)
            else:
                codes, scales[part], zeros[part] = block_uint8(rows, block)
            yield codes

    stored = graph.weights.add((weight.outputs, count, packed), np.uint8, pieces())
    inputs = [value, graph.stored(stored), graph.weight(scales, "scale")]
    if not symmetric:
        inputs.append(graph.weight(zeros, "zero"))
    return graph.node(
        "MatMulNBits",
        inputs,
        domain=MICROSOFT,
        name="product",
        K=weight.inputs,
        N=weight.outputs,
        bits=bits,
        block_size=block,
        # 4: activations in int8 blocks as well. On AVX2 and VNNI the only fast kernel.
        accuracy_level=4,
    )
