"""Counts a graph's multiply-adds and the weights it reads, from the graph file alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, shape_inference

Shape = tuple[int, ...]

_FLOAT_PRODUCTS = ("MatMul", "Gemm", "Conv", "ConvTranspose")
_INT8_PRODUCTS = ("DynamicQuantizeMatMul", "MatMulIntegerToFloat", "MatMulInteger", "ConvInteger")
_BLOCK_PRODUCT = "MatMulNBits"
_CONVOLUTIONS = ("Conv", "ConvTranspose", "ConvInteger")
# Operators that ONNX's own shape inference does not know; their first (and fourth) output has
# the shape of their first input.
_SAME_SHAPE = (
    "SimplifiedLayerNormalization",
    "SkipSimplifiedLayerNormalization",
    "SkipLayerNormalization",
    "RotaryEmbedding",
)
_ATTENTION = "GroupQueryAttention"


@dataclass(frozen=True)
class Product:
    """A product of rows with a weight matrix.

    Attributes:
        format: Weight format, such as ``f32``, ``int8`` or ``int4-32``.
        rows: Rows multiplied at once.
        inputs: Their width.
        outputs: Width of the result.
    """

    format: str
    rows: int
    inputs: int
    outputs: int


@dataclass
class Work:
    """Products of one run, and what they read.

    Attributes:
        macs: Multiply-adds by weight format: ``f32``, ``int8`` (activations quantized per call),
            ``int8-128`` and the like (in blocks of that many). Convolutions and products of two
            activations count as ``f32``; attention over the KV cache is not counted.
        weight_bytes: Bytes of weights and scales that the products read.
        products: How often each product with a weight matrix occurs; no convolutions.
        uncounted: Products whose shapes are not known.
    """

    macs: dict[str, int] = field(default_factory=dict)
    weight_bytes: int = 0
    products: Counter[Product] = field(default_factory=Counter)
    uncounted: int = 0

    def add(self, other: Work, times: int = 1) -> None:
        """Add another run's work, several times."""
        for name, count in other.macs.items():
            self.macs[name] = self.macs.get(name, 0) + count * times
        for product, count in other.products.items():
            self.products[product] += count * times
        self.weight_bytes += other.weight_bytes * times
        self.uncounted += other.uncounted * times


def graph_work(path: Path, shapes: Mapping[str, Shape]) -> Work:
    """Count one run of a graph.

    Args:
        path: ONNX file as it was exported; weights beside it are not read.
        shapes: Shape of every input.
    """
    model = onnx.load(str(path), load_external_data=False)
    for value in model.graph.input:
        if value.name in shapes:
            _fix(value, shapes[value.name])
    known = _inferred(model)
    constant = _constants(model.graph)
    work = Work()
    for node in model.graph.node:
        format_ = _format(node)
        if format_ is None:
            continue
        count = _multiply_adds(node, known)
        if count is None:
            work.uncounted += 1
            continue
        work.macs[format_] = work.macs.get(format_, 0) + count
        work.weight_bytes += sum(
            known[name].nbytes for name in node.input if name in constant and name in known
        )
        if node.op_type not in _CONVOLUTIONS and node.input[1] in constant:
            rows, outputs = known[node.input[0]].shape, known[node.output[0]].shape[-1]
            work.products[Product(format_, math.prod(rows[:-1]), rows[-1], outputs)] += 1
    return work


@dataclass(frozen=True)
class _Value:
    shape: Shape
    kind: int

    @property
    def nbytes(self) -> int:
        half = self.kind in (TensorProto.INT4, TensorProto.UINT4)
        bits = 4 if half else 8 * np.dtype(helper.tensor_dtype_to_np_dtype(self.kind)).itemsize
        return int(math.prod(self.shape) * bits // 8)


def _format(node: onnx.NodeProto) -> str | None:
    """Weight format of a product; None for any other operator."""
    if node.op_type in _FLOAT_PRODUCTS:
        return "f32"
    if node.op_type in _INT8_PRODUCTS:
        return "int8"
    if node.op_type == _BLOCK_PRODUCT:
        return f"int{_attribute(node, 'bits', 4)}-{_attribute(node, 'block_size', 32)}"
    return None


def _multiply_adds(node: onnx.NodeProto, known: Mapping[str, _Value]) -> int | None:
    result, first = known.get(node.output[0]), known.get(node.input[0])
    if result is None or first is None:
        return None
    if node.op_type not in _CONVOLUTIONS:
        return math.prod(result.shape) * first.shape[-1]
    weight = known.get(node.input[1])
    if weight is None:
        return None
    per_value = math.prod(weight.shape[1:])
    # A transposed convolution spreads every input value; a plain one gathers every output.
    base = first if node.op_type == "ConvTranspose" else result
    return math.prod(base.shape) * per_value


def _inferred(model: onnx.ModelProto) -> dict[str, _Value]:
    """Shape and type of every value that is known once all inputs are."""
    stand_in = onnx.ModelProto()
    stand_in.CopyFrom(model)
    del stand_in.graph.node[:]
    weights = model.graph.initializer
    sizes: dict[str, Shape] = {tensor.name: tuple(tensor.dims) for tensor in weights}
    for value in model.graph.input:
        sizes[value.name] = tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
    for node in model.graph.node:
        stand_in.graph.node.extend(_standard(node, sizes))
    inferred = shape_inference.infer_shapes(stand_in, data_prop=True).graph
    known = {tensor.name: _Value(tuple(tensor.dims), tensor.data_type) for tensor in weights}
    for value in (*inferred.input, *inferred.value_info, *inferred.output):
        tensor_type = value.type.tensor_type
        dims = tensor_type.shape.dim
        if tensor_type.HasField("shape") and all(dim.HasField("dim_value") for dim in dims):
            shape = tuple(dim.dim_value for dim in dims)
            known.setdefault(value.name, _Value(shape, tensor_type.elem_type))
    return known


def _standard(node: onnx.NodeProto, sizes: Mapping[str, Shape]) -> list[onnx.NodeProto]:
    """Standard operators whose outputs have the shapes of this one's.

    Args:
        node: Any node.
        sizes: Shapes of weights and graph inputs.
    """
    if node.op_type == _BLOCK_PRODUCT:
        return _product(node, (_attribute(node, "K", 0), _attribute(node, "N", 0)))
    if node.op_type in ("DynamicQuantizeMatMul", "MatMulIntegerToFloat"):
        return _product(node, sizes[node.input[1]]) if node.input[1] in sizes else [node]
    if node.op_type in _SAME_SHAPE:
        # Two more outputs of norms are for training, and empty here.
        return [
            helper.make_node("Identity", [node.input[0]], [name])
            for index, name in enumerate(node.output)
            if name and index in (0, 3)
        ]
    if node.op_type == _ATTENTION:
        # Query, key and value may come in one; the query's share has the result's shape.
        width = _attribute(node, "num_heads", 1) * sizes[node.input[3]][-1]
        bounds = f"{node.output[0]}.bounds"
        names = [f"{bounds}.{index}" for index in range(3)]
        return [
            *(_integers(name, [each]) for name, each in zip(names, (0, width, -1), strict=True)),
            helper.make_node("Slice", [node.input[0], *names], [node.output[0]]),
        ]
    return [node]


def _product(node: onnx.NodeProto, size: Shape) -> list[onnx.NodeProto]:
    name = f"{node.output[0]}.stand_in"
    return [
        _integers(f"{name}.size", list(size)),
        helper.make_node("ConstantOfShape", [f"{name}.size"], [name]),
        helper.make_node("MatMul", [node.input[0], name], [node.output[0]]),
    ]


def _integers(name: str, values: list[int]) -> onnx.NodeProto:
    tensor = helper.make_tensor(name, TensorProto.INT64, [len(values)], values)
    return helper.make_node("Constant", [], [name], value=tensor)


def _constants(graph: onnx.GraphProto) -> set[str]:
    """Values that depend on weights alone, such as a weight that is widened."""
    constant = {tensor.name for tensor in graph.initializer}
    for node in graph.node:
        if node.input and all(name in constant for name in node.input if name):
            constant.update(node.output)
    return constant


def _attribute(node: onnx.NodeProto, name: str, default: int) -> int:
    return next((int(item.i) for item in node.attribute if item.name == name), default)


def _fix(value: onnx.ValueInfoProto, shape: Shape) -> None:
    dims = value.type.tensor_type.shape.dim
    del dims[:]
    for size in shape:
        dims.add().dim_value = size
