"""Cuts a graph into pieces that run one after another, so that few weights are loaded at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import onnx
from onnx import helper


@dataclass(frozen=True)
class Piece:
    """Consecutive nodes of a graph.

    Attributes:
        nodes: The nodes.
        inputs: Values made outside, weights not among them.
        outputs: Values that are needed outside.
    """

    nodes: tuple[onnx.NodeProto, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def model(
        self, whole: onnx.ModelProto, inputs: dict[str, tuple[np.dtype[np.generic], int]]
    ) -> onnx.ModelProto:
        """The piece as a graph of its own over the same weight file.

        Args:
            whole: What it is a piece of.
            inputs: Type and rank of every input. Outputs need none: the runtime infers them.
        """
        read = {name for node in self.nodes for name in node.input}
        graph = helper.make_graph(
            list(self.nodes),
            "piece",
            [
                helper.make_tensor_value_info(
                    name,
                    helper.np_dtype_to_tensor_dtype(inputs[name][0]),
                    [f"{name}.{axis}" for axis in range(inputs[name][1])],
                )
                for name in self.inputs
            ],
            [onnx.ValueInfoProto(name=name) for name in self.outputs],
            [tensor for tensor in whole.graph.initializer if tensor.name in read],
        )
        model = helper.make_model(graph, opset_imports=list(whole.opset_import))
        model.ir_version = whole.ir_version
        return model


def pieces(model: onnx.ModelProto, most_bytes: int) -> Iterator[Piece]:
    """Cut a graph.

    Args:
        model: Nodes in an order in which they can run; weights need not be loaded.
        most_bytes: Weights per piece; a node with more is a piece of its own.
    """
    sizes = {tensor.name: _bytes(tensor) for tensor in model.graph.initializer}
    groups: list[list[onnx.NodeProto]] = [[]]
    held: set[str] = set()
    for node in model.graph.node:
        new = {name for name in node.input if name in sizes} - held
        if groups[-1] and sum(sizes[name] for name in held | new) > most_bytes and new:
            groups.append([])
            held = set()
        groups[-1].append(node)
        held |= {name for name in node.input if name in sizes}
    wanted = {output.name for output in model.graph.output}
    # From the end: what later pieces read has to come out of the earlier ones.
    found: list[Piece] = []
    for nodes in reversed(groups):
        made = [name for node in nodes for name in node.output if name]
        read = _read(nodes, set(made) | set(sizes))
        found.append(Piece(tuple(nodes), read, tuple(name for name in made if name in wanted)))
        wanted |= set(read)
    yield from reversed(found)


def _read(nodes: Sequence[onnx.NodeProto], known: set[str]) -> tuple[str, ...]:
    names = dict.fromkeys(name for node in nodes for name in node.input if name)
    return tuple(name for name in names if name not in known)


def _bytes(tensor: onnx.TensorProto) -> int:
    size = int(helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)
    return size * int(prod(tensor.dims))
