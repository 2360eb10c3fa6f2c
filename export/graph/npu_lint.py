"""Refuses graphs in spellings that Rockchip's compiler converts badly, before it is asked.

What each of them costs was measured with rknn-toolkit2 2.5.0 for rk3588; see docs/npu.md.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from edge_runtime.errors import CheckpointError

_NEWEST_OPSET = 19
_MOST_DIMENSIONS = 4
# Operators that go to the CPU, cost accuracy, or overflow without a word.
_REFUSED = {
    "Sin": "goes to the CPU; keep time embeddings on the host",
    "Cos": "goes to the CPU; keep time embeddings on the host",
    "Reciprocal": "a norm spelled with it overflows to zeros at 1000; divide by the root",
    "ReduceL2": "has no eps, so that rows of zeros become NaN",
    "Expand": "repeats keys and values; give the heads of a group a dimension of their own",
    "Tile": "repeats keys and values; give the heads of a group a dimension of their own",
    "Where": "goes to the CPU; add a mask",
    "Gather": "goes to the CPU; slice",
    "Shape": "needs shapes that are known",
    "Gemm": "is slower than a convolution of the same product",
}


def check_for_npu(model: onnx.ModelProto) -> None:
    """Look for what converts badly.

    Raises:
        CheckpointError: Naming all that was found and where. It is a fault of the exporter, which
            a user can only report.
    """
    found = list(_complaints(model))
    if found:
        shown = "; ".join(found[:5])
        raise CheckpointError(
            f"{model.graph.name}: not fit for the NPU: {shown}{'; …' if len(found) > 5 else ''}.",
            remedy="Export with --no-npu, and report this.",
        )


def _complaints(model: onnx.ModelProto) -> Iterator[str]:
    for entry in model.opset_import:
        if not entry.domain and entry.version > _NEWEST_OPSET:
            yield f"opset {entry.version}, the newest it reads is {_NEWEST_OPSET}"
    graph = model.graph
    for port in (*graph.input, *graph.output):
        dims = port.type.tensor_type.shape.dim
        if any(not dim.HasField("dim_value") for dim in dims):
            yield f"{port.name}: its shape is not fixed"
        if len(dims) > _MOST_DIMENSIONS:
            yield f"{port.name}: {len(dims)} dimensions"
    made_by = {name: node for node in graph.node for name in node.output}
    for node in graph.node:
        if node.domain:
            yield f"{node.name}: {node.domain}.{node.op_type} is not a standard operator"
        elif node.op_type in _REFUSED:
            yield f"{node.name}: {node.op_type} {_REFUSED[node.op_type]}"
        elif node.op_type == "Clip" and (len(node.input) < 3 or not all(node.input[1:])):
            yield f"{node.name}: Clip without both bounds gives zeros"
        elif node.op_type == "MatMul" and _is_constant(node, graph, made_by):
            yield f"{node.name}: MatMul with weights; write a convolution"
        elif node.op_type == "Mul" and _is_rotated_late(node, made_by):
            yield f"{node.name}: Mul after a rotation crashes the converter; multiply before it"


def _is_constant(
    node: onnx.NodeProto, graph: onnx.GraphProto, made_by: dict[str, onnx.NodeProto]
) -> bool:
    ports = {port.name for port in graph.input}
    return any(name not in made_by and name not in ports for name in node.input)


def _is_rotated_late(node: onnx.NodeProto, made_by: dict[str, onnx.NodeProto]) -> bool:
    makers = [made_by[name] for name in node.input if name in made_by]
    return any("rotate" in maker.name and maker.op_type in ("Conv", "MatMul") for maker in makers)
