"""The same graph over an f16 KV cache: half the memory per row, attention in f16."""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper

_ATTENTION = "GroupQueryAttention"
_PACKED, _PAST, _TABLES = 0, (3, 4), (7, 8)


def with_f16_cache(model: onnx.ModelProto) -> onnx.ModelProto:
    """Copy a graph of cached attention layers and give it an f16 cache.

    Queries, keys, values and the rotary tables are narrowed before each attention node and its
    result widened after, so that everything else stays as it was. The weights are the same file's.

    Args:
        model: Graph whose cache is f32.

    Returns:
        A graph whose ``past_*`` and ``present_*`` ports are f16.
    """
    result = onnx.ModelProto()
    result.CopyFrom(model)
    nodes: list[onnx.NodeProto] = []
    narrowed: dict[str, str] = {}

    def cast(value: str, to: int, name: str) -> str:
        nodes.append(helper.make_node("Cast", [value], [name], name=name, to=to))
        return name

    def narrow(value: str) -> str:
        if value not in narrowed:
            narrowed[value] = cast(value, TensorProto.FLOAT16, f"{value}.f16")
        return narrowed[value]

    ports: set[str] = set()
    for node in result.graph.node:
        if node.op_type != _ATTENTION:
            nodes.append(node)
            continue
        node.input[_PACKED] = narrow(node.input[_PACKED])
        for index in _TABLES:
            if index < len(node.input) and node.input[index]:
                node.input[index] = narrow(node.input[index])
        ports.update(node.input[index] for index in _PAST)
        ports.update(node.output[1:])
        wide = node.output[0]
        node.output[0] = f"{wide}.f16"
        nodes.append(node)
        cast(node.output[0], TensorProto.FLOAT, wide)
    del result.graph.node[:]
    result.graph.node.extend(nodes)
    for port in (*result.graph.input, *result.graph.output):
        if port.name in ports:
            port.type.tensor_type.elem_type = TensorProto.FLOAT16
    return result
