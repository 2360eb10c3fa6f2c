"""Bidirectional attention over a handful of rows (one patch)."""

from __future__ import annotations

import numpy as np

from export.checkpoint.tensor_source import FloatArray
from export.graph.builder import MICROSOFT, GraphBuilder
from export.graph.layer_group import LayerGroup
from export.graph.linear import LinearWeight, linear
from export.graph.parameters import Parameters
from export.graph.transformer import attention_scale, stack
from export.graph.transformer_spec import TransformerSpec


def local_stack(
    graph: GraphBuilder,
    value: str,
    params: Parameters,
    spec: TransformerSpec,
    group: LayerGroup,
    rope: tuple[FloatArray, FloatArray] | None,
    *,
    rows: int,
    wanted: tuple[int, int],
) -> str:
    """Emit a stack whose last block computes only the rows that are wanted.

    Args:
        graph: Graph under construction.
        value: Rows [B, rows, hidden].
        params: Parameters of the stack.
        spec: Sizes.
        group: Layer kinds.
        rope: Cosine and sine tables, each [rows, head_size / 2]; None without rotation.
        rows: Number of rows, known at export.
        wanted: First wanted row and one past the last.

    Returns:
        [B, wanted rows, hidden].
    """
    start, stop = wanted
    tables = None
    if rope is not None:
        names = ("rope.cos", "rope.sin")
        tables = tuple(map(graph.weight, rope, names))

    def attend(index: int, normed: str, residual: str) -> tuple[str, str]:
        attention = params.at("layers", index, "self_attn")
        last = index == spec.num_layers - 1
        span = (start, stop) if last and wanted != (0, rows) else (0, rows)
        result = _attention(graph, normed, attention, spec, group, tables, rows, span)
        if span != (0, rows):
            residual = graph.slice(residual, start, stop, 1, name="wanted")
        return result, residual

    return stack(graph, value, params, spec, group, attend)


def _attention(
    graph: GraphBuilder,
    value: str,
    params: Parameters,
    spec: TransformerSpec,
    group: LayerGroup,
    rope: tuple[str, ...] | None,
    rows: int,
    span: tuple[int, int],
) -> str:
    size, kv_heads = spec.head_size, spec.num_kv_heads
    sharing = spec.num_heads // kv_heads
    query_width, key_width = spec.num_heads * size, kv_heads * size
    weights = (
        params.linear("q_proj", query_width, spec.hidden),
        params.linear("k_proj", key_width, spec.hidden),
        params.linear("v_proj", key_width, spec.hidden),
    )
    start, stop = span
    if span == (0, rows):
        fused = linear(graph, value, LinearWeight.stacked(*weights), group.qkv, name="qkv")
        sizes = graph.axes(query_width, key_width, key_width)
        query, key, values = graph.nodes("Split", [fused, sizes], 3, name="split", axis=-1)
    else:
        some = graph.slice(value, start, stop, 1, name="wanted")
        query = linear(graph, some, weights[0], group.qkv, name="q")
        fused = linear(graph, value, LinearWeight.stacked(*weights[1:]), group.qkv, name="kv")
        key, values = graph.nodes("Split", [fused], 2, name="split", axis=-1, num_outputs=2)
    count = stop - start
    if rope is not None:
        query = _rotate(graph, query, rope, start)
        key = _rotate(graph, key, rope, 0)
    query = graph.reshape(query, (0, count, kv_heads, sharing, size))
    key = graph.reshape(key, (0, rows, kv_heads, size))
    # [B, S, kv, sharing, d] -> [B, kv, sharing * S, d]: these queries share a key head, so keys
    # and values are never repeated.
    query = graph.node("Transpose", [query], perm=[0, 2, 3, 1, 4], name="by_head")
    query = graph.reshape(query, (0, kv_heads, sharing * count, size))
    key = graph.node("Transpose", [key], perm=[0, 2, 3, 1], name="by_head")
    values = graph.reshape(values, (0, rows, kv_heads, size))
    values = graph.node("Transpose", [values], perm=[0, 2, 1, 3], name="by_head")
    scale = graph.constant(attention_scale(size), np.float32, "scale")
    query = graph.node("Mul", [query, scale], name="scaled")
    scores = graph.node("MatMul", [query, key], name="scores")
    shares = graph.node("Softmax", [scores], axis=-1, name="shares")
    mixed = graph.node("MatMul", [shares, values], name="mixed")
    mixed = graph.reshape(mixed, (0, kv_heads, sharing, count, size))
    mixed = graph.node("Transpose", [mixed], perm=[0, 3, 1, 2, 4], name="by_row")
    mixed = graph.reshape(mixed, (0, count, query_width))
    output = params.linear("o_proj", spec.hidden, query_width, scale=spec.residual_scale)
    return linear(graph, mixed, output, group.output, name="output")


def _rotate(graph: GraphBuilder, value: str, rope: tuple[str, ...], start: int) -> str:
    """Rotate heads that lie side by side [B, S, heads * size]; the first row is at ``start``."""
    position = graph.constant([start], np.int64, "position")
    return graph.node(
        "RotaryEmbedding", [value, position, *rope], domain=MICROSOFT, name="rotated"
    )
