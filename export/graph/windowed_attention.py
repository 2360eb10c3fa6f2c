"""Transformer blocks whose attention sees a window of rows around each row.

Rows come in any number that is a multiple of a block; a block's queries meet the keys of three
blocks, so that scores grow with the rows, not with their square.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from device_profiles.weight_formats import LayerKind
from export.checkpoint.tensor_source import FloatArray
from export.graph.builder import MICROSOFT, GraphBuilder
from export.graph.layer_group import LayerGroup
from export.graph.linear import LinearWeight, linear
from export.graph.parameters import Parameters

# Blocks are multiples of it, for the kernels' sake.
_MULTIPLE = 32
# Added to scores that do not count. Finite: a block of nothing but padding must not make NaN.
_NEVER = np.float32(-1e9)
_END = 2**31 - 1


@dataclass(frozen=True)
class WindowedSpec:
    """Sizes of one stack.

    Attributes:
        hidden: Width of a row.
        ffn: Width of the MLP.
        heads: Heads.
        layers: Blocks.
        side: Rows seen on either side.
        eps: Of the layer norms.
        condition: Width of what modulates the norms (AdaLN-Zero); 0 for plain layer norms.
    """

    hidden: int
    ffn: int
    heads: int
    layers: int
    side: int
    eps: float
    condition: int = 0

    @property
    def head_size(self) -> int:
        """Dimensions per head."""
        return self.hidden // self.heads

    @property
    def block(self) -> int:
        """Rows per block: no fewer than a window's side."""
        return -(-max(self.side, 1) // _MULTIPLE) * _MULTIPLE


@dataclass(frozen=True)
class StackKinds:
    """Layer kinds of a stack.

    Attributes:
        blocks: Of the blocks' linear layers.
        modulation: Of what modulates the norms.
    """

    blocks: LayerGroup
    modulation: LayerKind


def windowed_stack(
    graph: GraphBuilder,
    value: str,
    params: Parameters,
    spec: WindowedSpec,
    kinds: StackKinds,
    condition: str = "",
) -> str:
    """Emit all blocks and the final norm, and declare the inputs that they read.

    Those are ``cos`` and ``sin`` f32 [rows, head size / 2] of the rows' positions, and ``absent``
    f32 [rows]: 1 for rows that are padding, else 0.

    Args:
        graph: Graph under construction.
        value: [rows, hidden]; rows are a multiple of the block.
        params: Parameters of the stack.
        spec: Sizes.
        kinds: Layer kinds.
        condition: f32 [1, condition]; empty without.

    Returns:
        [rows, hidden].
    """
    half = spec.head_size // 2
    tables = (graph.input("cos", ["rows", half]), graph.input("sin", ["rows", half]))
    bias = _bias(graph, spec)
    norms = _Norms(graph, spec, kinds.modulation, silu(graph, condition) if condition else "")
    for index in range(spec.layers):
        block = params.at("layers", index)
        with graph.scope(str(index)):
            with graph.scope("attention"):
                normed, gate = norms(value, block.at("attention_norm"))
                attention = block.at("attention")
                added = _attention(graph, normed, attention, spec, kinds.blocks, tables, bias)
                value = _add(graph, value, added, gate)
            with graph.scope("mlp"):
                normed, gate = norms(value, block.at("ffn_norm"))
                added = _mlp(graph, normed, block.at("feed_forward"), spec, kinds.blocks)
                value = _add(graph, value, added, gate)
    with graph.scope("norm"):
        return norms(value, params.at("norm"), gated=False)[0]


def layer_norm(
    graph: GraphBuilder, value: str, scale: FloatArray, bias: FloatArray | None, eps: float
) -> str:
    """Emit a layer norm over the last axis."""
    inputs = [value, graph.weight(scale, "norm.weight")]
    if bias is not None:
        inputs.append(graph.weight(bias, "norm.bias"))
    return graph.node("LayerNormalization", inputs, axis=-1, epsilon=eps, name="norm")


def silu(graph: GraphBuilder, value: str) -> str:
    """Emit ``x * sigmoid(x)``."""
    return graph.node("Mul", [value, graph.node("Sigmoid", [value], name="sigmoid")], name="silu")


class _Norms:
    """Layer norms, plain or modulated by the condition (AdaLN-Zero)."""

    def __init__(
        self, graph: GraphBuilder, spec: WindowedSpec, kind: LayerKind, condition: str
    ) -> None:
        self._graph, self._spec, self._kind, self._condition = graph, spec, kind, condition

    def __call__(self, value: str, params: Parameters, *, gated: bool = True) -> tuple[str, str]:
        """The normed value, and the gate on what is added; empty where there is none."""
        graph, width = self._graph, self._spec.hidden
        if not self._condition:
            scale, bias = params.array("weight", width), params.array("bias", width)
            return layer_norm(graph, value, scale, bias, self._spec.eps), ""
        parts = 3 if gated else 2
        name = "condition_proj.1"
        modulation = linear(
            graph, self._condition, params.linear(name, parts * width, self._spec.condition),
            self._kind, bias=params.bias(name, parts * width), name="modulation",
        )  # fmt: skip
        shift, scale_name, *gate = graph.nodes(
            "Split", [modulation], parts, name="parts", axis=-1, num_outputs=parts
        )
        normed = layer_norm(graph, value, np.ones(width, np.float32), None, self._spec.eps)
        one = graph.constant(1, np.float32, "one")
        factor = graph.node("Add", [scale_name, one], name="factor")
        scaled = graph.node("Mul", [normed, factor], name="scaled")
        return graph.node("Add", [scaled, shift], name="shifted"), gate[0] if gate else ""


def _add(graph: GraphBuilder, value: str, added: str, gate: str) -> str:
    if gate:
        added = graph.node("Mul", [added, gate], name="gated")
    return graph.node("Add", [value, added], name="sum")


def _mlp(
    graph: GraphBuilder, value: str, params: Parameters, spec: WindowedSpec, group: LayerGroup
) -> str:
    """Emit ``w2(silu(w1 x) * w3 x)`` with w1 and w3 fused."""
    both = LinearWeight.stacked(
        params.linear("w1", spec.ffn, spec.hidden), params.linear("w3", spec.ffn, spec.hidden)
    )
    fused = linear(graph, value, both, group.gate_up, name="gate_up")
    gate, up = graph.nodes("Split", [fused], 2, name="split", axis=-1, num_outputs=2)
    product = graph.node("Mul", [silu(graph, gate), up], name="product")
    return linear(graph, product, params.linear("w2", spec.hidden, spec.ffn), group.down, name="w2")


def _bias(graph: GraphBuilder, spec: WindowedSpec) -> str:
    """What is added to scores [blocks, 1, block, 3 * block]: padding and the window's edges."""
    size = spec.block
    absent = graph.input("absent", ["rows"])
    never = graph.constant(_NEVER, np.float32, "never")
    padding = graph.reshape(graph.node("Mul", [absent, never], name="padding"), (-1, size))
    keys = _with_neighbours(graph, padding, np.full((1, size), _NEVER, np.float32))
    keys = graph.reshape(keys, (-1, 1, 1, 3 * size))
    query, key = np.arange(size)[:, None] + size, np.arange(3 * size)[None]
    outside = np.where(np.abs(query - key) <= spec.side, np.float32(0), _NEVER)
    window = graph.weight(outside.astype(np.float32), "window")
    return graph.node("Add", [keys, window], name="bias")


def _with_neighbours(graph: GraphBuilder, blocks: str, edge: FloatArray) -> str:
    """Put each block between the one before and the one after: [n, size, ...] along axis 1."""
    outer = graph.weight(edge, "edge")
    before = graph.slice(blocks, 0, -1, 0, name="all_but_last")
    before = graph.node("Concat", [outer, before], axis=0, name="before")
    after = graph.slice(blocks, 1, _END, 0, name="all_but_first")
    after = graph.node("Concat", [after, outer], axis=0, name="after")
    return graph.node("Concat", [before, blocks, after], axis=1, name="three")


def _attention(
    graph: GraphBuilder,
    value: str,
    params: Parameters,
    spec: WindowedSpec,
    group: LayerGroup,
    tables: tuple[str, str],
    bias: str,
) -> str:
    heads, size, block, width = spec.heads, spec.head_size, spec.block, spec.hidden
    parts = (params.linear(name, width, width) for name in ("wq", "wk", "wv"))
    mixed = linear(graph, value, LinearWeight.stacked(*parts), group.qkv, name="qkv")
    query, key, values = graph.nodes("Split", [mixed], 3, name="split", axis=-1, num_outputs=3)
    query, key = (_rotate(graph, part, tables, width) for part in (query, key))
    edge = np.zeros((1, block, width), np.float32)
    scale = graph.constant(1 / np.sqrt(size), np.float32, "scale")
    query = graph.node("Mul", [query, scale], name="scaled")
    query = graph.reshape(query, (-1, block, heads, size))
    query = graph.node("Transpose", [query], perm=[0, 2, 1, 3], name="by_head")
    key, values = (
        graph.reshape(
            _with_neighbours(graph, graph.reshape(part, (-1, block, width)), edge),
            (0, 3 * block, heads, size),
        )
        for part in (key, values)
    )
    key = graph.node("Transpose", [key], perm=[0, 2, 3, 1], name="by_head")
    values = graph.node("Transpose", [values], perm=[0, 2, 1, 3], name="by_head")
    scores = graph.node("MatMul", [query, key], name="scores")
    scores = graph.node("Add", [scores, bias], name="masked")
    shares = graph.node("Softmax", [scores], axis=-1, name="shares")
    attended = graph.node("MatMul", [shares, values], name="attended")
    attended = graph.node("Transpose", [attended], perm=[0, 2, 1, 3], name="by_row")
    attended = graph.reshape(attended, (-1, width))
    return linear(graph, attended, params.linear("wo", width, width), group.output, name="output")


def _rotate(graph: GraphBuilder, value: str, tables: tuple[str, str], width: int) -> str:
    """Rotate neighbouring pairs of all heads [rows, width] by the rows' angles."""
    first = graph.constant([0], np.int64, "first")
    rows = graph.reshape(value, (1, -1, width))
    turned = graph.node(
        "RotaryEmbedding", [rows, first, *tables], domain=MICROSOFT, name="rotated", interleaved=1
    )
    return graph.reshape(turned, (-1, width))
