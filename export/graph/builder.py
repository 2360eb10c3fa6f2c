"""Builds one ONNX graph: named nodes, inline constants, weights as external data."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from export.weights.plan import WeightPlan
from export.weights.weight_file import StoredTensor, WeightFile

OPSET = 19
IR_VERSION = 9
MICROSOFT = "com.microsoft"

Shape = Sequence[int | str]


class GraphBuilder:
    """Collects the nodes of one graph.

    Values are named after the scope they are made in (``base_lm/0/attention/...``), so that a
    reader of the graph, or a test that taps a value, finds them by the model's own names.

    Args:
        name: Graph name.
        weights: File that takes the weights.
        plan: Weight format per layer kind.
    """

    def __init__(self, name: str, weights: WeightFile, plan: WeightPlan) -> None:
        self.name = name
        self.weights = weights
        self.plan = plan
        self._nodes: list[onnx.NodeProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._initializers: list[TensorProto] = []
        self._scopes: list[str] = []
        self._taken: dict[str, int] = {}

    @contextlib.contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Prefix the names of all values made inside."""
        self._scopes.append(name)
        try:
            yield
        finally:
            self._scopes.pop()

    @property
    def place(self) -> str:
        """The current scope, for messages."""
        return "/".join((self.name, *self._scopes))

    def input(self, name: str, shape: Shape, dtype: npt.DTypeLike = np.float32) -> str:
        """Declare a graph input; strings in ``shape`` are symbolic."""
        self._inputs.append(self._value_info(name, shape, dtype))
        self._taken[name] = 1
        return name

    def output(
        self, value: str, name: str, shape: Shape, dtype: npt.DTypeLike = np.float32
    ) -> None:
        """Declare ``value`` as the graph output ``name``."""
        if value != name:
            self._nodes.append(helper.make_node("Identity", [value], [name], name=name))
        self._outputs.append(self._value_info(name, shape, dtype))

    def node(
        self,
        op: str,
        inputs: Sequence[str],
        *,
        domain: str = "",
        name: str = "",
        **attributes: Any,
    ) -> str:
        """Add a node with one output and return that value's name."""
        return self.nodes(op, inputs, 1, domain=domain, name=name, **attributes)[0]

    def nodes(
        self,
        op: str,
        inputs: Sequence[str],
        count: int,
        *,
        domain: str = "",
        name: str = "",
        outputs: Sequence[str] | None = None,
        **attributes: Any,
    ) -> list[str]:
        """Add a node with ``count`` outputs (or the given output names)."""
        base = self.unique(name or op)
        if outputs is None:
            outputs = [base] if count == 1 else [f"{base}.{index}" for index in range(count)]
        self._nodes.append(
            helper.make_node(
                op, list(inputs), list(outputs), name=base, domain=domain, **attributes
            )
        )
        return list(outputs)

    def constant(self, array: npt.ArrayLike, dtype: npt.DTypeLike, name: str = "const") -> str:
        """Store a small constant inside the graph file."""
        unique = self.unique(name)
        data = np.ascontiguousarray(np.asarray(array, dtype=dtype))
        self._initializers.append(numpy_helper.from_array(data, unique))
        return unique

    def axes(self, *values: int) -> str:
        """1-D int64 constant, as Slice, Reshape and reductions take it."""
        return self.constant(values, np.int64, "axes")

    def stored(self, tensor: StoredTensor, name: str = "weight") -> str:
        """Refer to a tensor of the weight file."""
        unique = self.unique(name)
        proto = TensorProto()
        proto.name = unique
        proto.data_type = helper.np_dtype_to_tensor_dtype(tensor.dtype)
        proto.dims.extend(tensor.shape)
        proto.data_location = TensorProto.EXTERNAL
        for key, value in (
            ("location", tensor.file),
            ("offset", str(tensor.offset)),
            ("length", str(tensor.length)),
        ):
            entry = proto.external_data.add()
            entry.key, entry.value = key, value
        self._initializers.append(proto)
        return unique

    def weight(self, array: npt.NDArray[np.generic], name: str = "weight") -> str:
        """Store an array in the weight file (in the graph when it is tiny) and refer to it."""
        if array.nbytes < 1024:
            return self.constant(array, array.dtype, name)
        return self.stored(self.weights.add(array.shape, array.dtype, [array]), name)

    def slice(self, value: str, start: int, stop: int, axis: int, name: str = "slice") -> str:
        """Slice one axis; ``stop`` may be a large number for "to the end"."""
        return self.node(
            "Slice", [value, self.axes(start), self.axes(stop), self.axes(axis)], name=name
        )

    def reshape(self, value: str, shape: Sequence[int], name: str = "reshape") -> str:
        """Reshape; 0 copies a dimension, -1 is inferred."""
        return self.node("Reshape", [value, self.axes(*shape)], name=name)

    def build(self) -> onnx.ModelProto:
        """Assemble the model."""
        graph = helper.make_graph(
            self._nodes, self.name, self._inputs, self._outputs, self._initializers
        )
        return helper.make_model(
            graph,
            ir_version=IR_VERSION,
            opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)],
            producer_name="boardvoice",
        )

    def unique(self, name: str) -> str:
        """A value name in the current scope that nobody has yet."""
        full = "/".join((*self._scopes, name))
        count = self._taken.get(full, 0)
        self._taken[full] = count + 1
        return f"{full}_{count}" if count else full

    @staticmethod
    def _value_info(name: str, shape: Shape, dtype: npt.DTypeLike) -> onnx.ValueInfoProto:
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return helper.make_tensor_value_info(name, kind, list(shape))
