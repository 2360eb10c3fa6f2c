"""The same graph in standard operators alone, for compilers that know no others (TensorRT)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

_LAST = 2**31 - 1


def with_standard_operators(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """Copy a graph without a KV cache and spell out what is ONNX Runtime's own.

    Products of dynamically quantized activations become products with widened weights, so results
    differ by the rounding of activations. The weights are the same file's.

    Args:
        model: The graph as the runtime's CPU back end takes it.

    Returns:
        A graph of the standard domain, or None where weights are in blocks: those have no standard
        form that every compiler reads.
    """
    if any(node.op_type in ("MatMulNBits", "GroupQueryAttention") for node in model.graph.node):
        return None
    result = onnx.ModelProto()
    result.CopyFrom(model)
    spelled = _Spelled()
    for node in model.graph.node:
        spell = _SPELLINGS.get(node.op_type)
        if spell is None:
            spelled.nodes.append(node)
        else:
            spell(spelled, node)
    del result.graph.node[:]
    result.graph.node.extend(spelled.nodes)
    result.graph.initializer.extend(spelled.constants)
    del result.opset_import[:]
    result.opset_import.extend(entry for entry in model.opset_import if not entry.domain)
    return result


class _Spelled:
    """Nodes and constants so far."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []

    def node(self, op: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, [output], name=output, **attributes))
        return output

    def axes(self, name: str, *values: int) -> str:
        self.constants.append(numpy_helper.from_array(np.array(values, np.int64), name))
        return name


def _norm(out: _Spelled, node: NodeProto, value: str | None = None) -> None:
    """``x / sqrt(mean(x * x) + epsilon) * weight``."""
    name, value = node.output[0], value or node.input[0]
    weight = node.input[2] if len(node.input) > 2 else node.input[1]
    epsilon = _attribute(node, "epsilon")
    constant = numpy_helper.from_array(np.array(epsilon, np.float32), f"{name}.epsilon")
    out.constants.append(constant)
    square = out.node("Mul", [value, value], f"{name}.square")
    mean = out.node("ReduceMean", [square, out.axes(f"{name}.axis", -1)], f"{name}.mean")
    raised = out.node("Add", [mean, constant.name], f"{name}.raised")
    root = out.node("Sqrt", [raised], f"{name}.root")
    out.node("Mul", [out.node("Div", [value, root], f"{name}.unit"), weight], name)


def _skip_norm(out: _Spelled, node: NodeProto) -> None:
    total = node.output[3] if len(node.output) > 3 and node.output[3] else f"{node.output[0]}.sum"
    _norm(out, node, out.node("Add", list(node.input[:2]), total))


def _rotary(out: _Spelled, node: NodeProto) -> None:
    """Heads side by side [B, S, heads * size]; halves turn by the angles of rows from a start on.

    The tables end where the rows end, as the exporter makes them.
    """
    value, start, *tables = node.input
    name = node.output[0]
    angles = []
    for table, kind in zip(tables, ("cos", "sin"), strict=True):
        end, axis = out.axes(f"{name}.{kind}.end", _LAST), out.axes(f"{name}.{kind}.axis", 0)
        rows = out.node("Slice", [table, start, end, axis], f"{name}.{kind}.rows")
        head = out.axes(f"{name}.{kind}.head", 1)
        angles.append(out.node("Unsqueeze", [rows, head], f"{name}.{kind}"))
    # [S, 1, size / 2] tells the size of a head, which nothing else here does.
    half = out.node("Shape", [angles[0]], f"{name}.half", start=2, end=3)
    size = out.node("Add", [half, half], f"{name}.size")
    lead = out.axes(f"{name}.lead", 0, 0, -1)
    shape = out.node("Concat", [lead, size], f"{name}.heads_shape", axis=0)
    heads = out.node("Reshape", [value, shape], f"{name}.heads")
    parts = [f"{name}.first", f"{name}.second"]
    out.nodes.append(
        helper.make_node("Split", [heads], parts, name=f"{name}.split", axis=-1, num_outputs=2)
    )
    (first, second), (cosine, sine) = parts, angles
    turned = []
    for index, (op, one, other) in enumerate((("Sub", first, second), ("Add", second, first))):
        near = out.node("Mul", [one, cosine], f"{name}.near_{index}")
        far = out.node("Mul", [other, sine], f"{name}.far_{index}")
        turned.append(out.node(op, [near, far], f"{name}.turned_{index}"))
    joined = out.node("Concat", turned, f"{name}.joined", axis=-1)
    out.node("Reshape", [joined, out.axes(f"{name}.flat", 0, 0, -1)], name)


def _quantized_product(out: _Spelled, node: NodeProto) -> None:
    value, weight, scale = node.input
    name = node.output[0]
    wide = out.node("DequantizeLinear", [weight, scale], f"{name}.weight", axis=1)
    out.node("MatMul", [value, wide], name)


def _attribute(node: NodeProto, name: str) -> float:
    return next(float(one.f) for one in node.attribute if one.name == name)


_SPELLINGS: dict[str, Callable[[_Spelled, NodeProto], None]] = {
    "SimplifiedLayerNormalization": _norm,
    "SkipSimplifiedLayerNormalization": _skip_norm,
    "RotaryEmbedding": _rotary,
    "DynamicQuantizeMatMul": _quantized_product,
}
