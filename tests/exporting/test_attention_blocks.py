"""Attention, rotary tables and convolutions against plain formulas in float64."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from graph_bench import parameters, run, save_graph, session
from hypothesis import given, settings
from hypothesis import strategies as st

from export.graph.builder import GraphBuilder
from export.graph.cached_attention import KvPorts, cached_attention
from export.graph.causal_conv import StatePorts, causal_conv, causal_upsample, conv_weight
from export.graph.heads import HeadLayout
from export.graph.layer_group import LayerGroup
from export.graph.local_attention import local_stack
from export.graph.rope import RopeSpec
from export.graph.transformer_spec import TransformerSpec

ROPE = RopeSpec(
    head_size=16, theta=10_000.0, long_factor=tuple(np.linspace(1, 9, 8)),
    short_factor=tuple(np.linspace(1, 3, 8)), original_max_positions=64, max_positions=512,
)  # fmt: skip


def rope_formula(spec: RopeSpec, positions: int) -> tuple[np.ndarray, np.ndarray]:
    """arXiv:2402.13753, and its scaling of attention for longer contexts."""
    longer = spec.max_positions > spec.original_max_positions
    factor = np.asarray(spec.long_factor if longer else spec.short_factor, np.float64)
    pair = np.arange(spec.head_size // 2, dtype=np.float64)
    angle = np.arange(positions)[:, None] / (factor * spec.theta ** (2 * pair / spec.head_size))
    ratio = spec.max_positions / spec.original_max_positions
    amplitude = math.sqrt(1 + math.log(ratio) / math.log(spec.original_max_positions))
    return np.cos(angle) * amplitude, np.sin(angle) * amplitude


@pytest.mark.parametrize(
    "spec",
    [
        ROPE,
        replace(ROPE, original_max_positions=512),
        replace(ROPE, long_factor=(4.0,)),
        replace(ROPE, theta=1e6, head_size=32, long_factor=tuple(np.linspace(1, 60, 16))),
    ],
    ids=["long", "short", "one factor", "other base"],
)
def test_rotary_tables_follow_the_formula(spec: RopeSpec) -> None:
    for found, exact in zip(spec.tables(512), rope_formula(spec, 512), strict=True):
        assert found.dtype == np.float32
        assert found.shape == (512, spec.head_size // 2)
        # Angles up to 511 rad are held in f32: 3e-5 rad of rounding.
        np.testing.assert_allclose(found, exact, atol=2e-4)


def test_fewer_positions_are_the_first_rows_of_more() -> None:
    for few, many in zip(ROPE.tables(10), ROPE.tables(100), strict=True):
        assert np.array_equal(few, many[:10])


@given(size=st.integers(1, 130))
def test_padded_heads_hold_each_half_at_its_place(size: int) -> None:
    layout = HeadLayout.of(size)
    assert layout.padded % 16 == 0
    assert size <= layout.padded < size + 16
    places = layout._places()
    assert len(set(places)) == size
    assert max(places) < layout.padded
    if size % 2 == 0:
        half = size // 2
        pairs = zip(places[:half], places[half:], strict=True)
        assert all(second - first == layout.padded // 2 for first, second in pairs)


def attention_case(head_size: int, heads: int, kv_heads: int, seed: int = 0):
    hidden = 24
    spec = TransformerSpec(hidden, 32, heads, kv_heads, head_size, 1, 1e-5, 1.0, True)
    random = np.random.default_rng(seed)
    shapes = {
        "q_proj": (heads * head_size, hidden), "k_proj": (kv_heads * head_size, hidden),
        "v_proj": (kv_heads * head_size, hidden), "o_proj": (hidden, heads * head_size),
    }  # fmt: skip
    weights = {
        f"{name}.weight": (random.standard_normal(shape) / 4).astype(np.float32)
        for name, shape in shapes.items()
    }
    return spec, weights, random


def attention_formula(
    value: np.ndarray, weights: dict, spec: TransformerSpec,
    rope: tuple[np.ndarray, np.ndarray] | None, *, causal: bool,
) -> np.ndarray:  # fmt: skip
    size, rows = spec.head_size, len(value)
    value = value.astype(np.float64)
    query, key, values = (
        (value @ weights[f"{name}_proj.weight"].T.astype(np.float64)).reshape(rows, -1, size)
        for name in "qkv"
    )
    if rope is not None:
        cosine, sine = (table[:rows, None].astype(np.float64) for table in rope)

        def turn(x: np.ndarray) -> np.ndarray:
            first, second = x[..., : size // 2], x[..., size // 2 :]
            return np.concatenate(
                [first * cosine - second * sine, second * cosine + first * sine], axis=-1
            )

        query, key = turn(query), turn(key)
    group = spec.num_heads // spec.num_kv_heads
    key, values = np.repeat(key, group, axis=1), np.repeat(values, group, axis=1)
    scores = np.einsum("shd,thd->hst", query, key) / math.sqrt(size)
    if causal:
        scores = np.where(np.tril(np.ones((rows, rows), bool)), scores, -np.inf)
    shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    mixed = np.einsum("hst,thd->shd", shares, values).reshape(rows, -1)
    return mixed @ weights["o_proj.weight"].T.astype(np.float64)


@pytest.mark.parametrize("rotate", [True, False])
@pytest.mark.parametrize(
    ("head_size", "heads", "kv_heads"),
    [(8, 4, 2), (16, 4, 2), (24, 2, 1), (24, 4, 4), (32, 6, 2), (2, 2, 1), (40, 2, 2)],
)
def test_padded_cached_attention_is_plain_attention(
    tmp_path: Path, head_size: int, heads: int, kv_heads: int, rotate: bool
) -> None:
    spec, weights, random = attention_case(head_size, heads, kv_heads)
    rope_spec = replace(
        ROPE, head_size=head_size,
        long_factor=tuple(np.linspace(1, 5, head_size // 2)),
    )  # fmt: skip
    tables = rope_spec.tables(32)
    layout = HeadLayout.of(head_size)

    def build(graph: GraphBuilder) -> None:
        value = graph.input("x", [1, "S", spec.hidden])
        ports = KvPorts(graph, kv_heads, layout.padded)
        rope = tuple(graph.weight(layout.table(t), "rope") for t in tables) if rotate else None
        result = cached_attention(
            graph, value, parameters(weights), spec, LayerGroup.named("lm.base"), ports, rope
        )
        graph.output(result, "y", [1, "S", spec.hidden])

    ort_session = session(save_graph(tmp_path, build))
    rows = random.standard_normal((9, spec.hidden)).astype(np.float32)
    exact = attention_formula(rows, weights, spec, tables if rotate else None, causal=True)
    shape = (1, kv_heads, 16, layout.padded)
    key, value = (np.full(shape, np.nan, np.float32) for _ in range(2))
    found, start = [], 0
    for count in (5, 1, 1, 2):
        y, key, value = ort_session.run(
            ["y", "present_key_0", "present_value_0"],
            {
                "x": rows[None, start : start + count],
                "seqlens_k": np.array([start + count - 1], np.int32),
                "total_rows": np.array(start + count, np.int32),
                "past_key_0": key, "past_value_0": value,
            },
        )  # fmt: skip
        found.append(y[0])
        start += count
    np.testing.assert_allclose(np.concatenate(found), exact, atol=2e-5)


@pytest.mark.parametrize("rotate", [True, False])
@pytest.mark.parametrize(("head_size", "heads", "kv_heads"), [(8, 4, 2), (24, 2, 1), (16, 6, 3)])
@pytest.mark.parametrize("wanted", [(0, 7), (0, 1), (3, 7), (2, 5)])
def test_a_local_stack_gives_the_wanted_rows_of_a_plain_one(
    tmp_path: Path, head_size: int, heads: int, kv_heads: int, rotate: bool, wanted
) -> None:
    case, attention, random = attention_case(head_size, heads, kv_heads)
    spec = replace(case, num_layers=2, residual_scale=0.7)
    arrays: dict[str, np.ndarray] = {"norm.weight": random.uniform(0.5, 1.5, spec.hidden)}
    for layer in range(2):
        prefix = f"layers.{layer}"
        arrays |= {f"{prefix}.self_attn.{n}": w + 0.01 * layer for n, w in attention.items()}
        for name, shape in (
            ("gate_proj", (spec.ffn, spec.hidden)), ("up_proj", (spec.ffn, spec.hidden)),
            ("down_proj", (spec.hidden, spec.ffn)),
        ):  # fmt: skip
            arrays[f"{prefix}.mlp.{name}.weight"] = random.standard_normal(shape) / 4
        for name in ("input_layernorm", "post_attention_layernorm"):
            arrays[f"{prefix}.{name}.weight"] = random.uniform(0.5, 1.5, spec.hidden)
    arrays = {name: array.astype(np.float32) for name, array in arrays.items()}
    factors = tuple(np.linspace(1, 5, head_size // 2))
    tables = replace(ROPE, head_size=head_size, long_factor=factors).tables(7)

    def build(graph: GraphBuilder) -> None:
        value = graph.input("x", ["B", 7, spec.hidden])
        result = local_stack(
            graph, value, parameters(arrays), spec, LayerGroup.named("flow"),
            tables if rotate else None, rows=7, wanted=wanted,
        )  # fmt: skip
        graph.output(result, "y", ["B", wanted[1] - wanted[0], spec.hidden])

    value = random.standard_normal((3, 7, spec.hidden)).astype(np.float32)
    found = run(save_graph(tmp_path, build), x=value)["y"]

    def norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return x / np.sqrt(np.square(x).mean(axis=-1, keepdims=True) + spec.eps) * weight

    for batch in range(3):
        x = value[batch].astype(np.float64)
        for layer in range(2):
            at = {
                name.removeprefix(f"layers.{layer}."): array
                for name, array in arrays.items()
                if name.startswith(f"layers.{layer}.")
            }
            inner = {n.removeprefix("self_attn."): a for n, a in at.items() if "self_attn" in n}
            x = x + 0.7 * attention_formula(
                norm(x, at["input_layernorm.weight"]), inner, spec,
                tables if rotate else None, causal=False,
            )  # fmt: skip
            normed = norm(x, at["post_attention_layernorm.weight"])
            gate = normed @ at["mlp.gate_proj.weight"].T
            up = normed @ at["mlp.up_proj.weight"].T
            x = x + 0.7 * (gate / (1 + np.exp(-gate)) * up) @ at["mlp.down_proj.weight"].T
        exact = norm(x, arrays["norm.weight"])[wanted[0] : wanted[1]]
        np.testing.assert_allclose(found[batch], exact, atol=1e-4)


def test_weight_norm_is_resolved_along_the_first_axis() -> None:
    random = np.random.default_rng(0)
    direction = random.standard_normal((5, 3, 7)).astype(np.float32)
    gain = random.uniform(0.5, 2, (5, 1, 1)).astype(np.float32)
    found = conv_weight(parameters({"weight_v": direction, "weight_g": gain}), 5, 3, 7)
    assert found.dtype == np.float32
    for row in range(5):
        exact = direction[row].astype(np.float64)
        exact *= float(gain[row, 0, 0]) / np.linalg.norm(exact)
        np.testing.assert_allclose(found[row], exact, rtol=1e-6)


def test_a_resolved_weight_is_taken_as_it_is() -> None:
    weight = np.arange(6, dtype=np.float32).reshape(2, 3, 1)
    assert np.array_equal(conv_weight(parameters({"weight": weight}), 2, 3, 1), weight)


@settings(max_examples=25, deadline=None)
@given(
    stride=st.integers(1, 4), dilation=st.integers(1, 3), kernel=st.integers(1, 5),
    depthwise=st.booleans(), cuts=st.lists(st.integers(1, 3), min_size=1, max_size=4),
)  # fmt: skip
def test_a_causal_convolution_in_pieces_is_one_with_zeros_before_it(
    tmp_path_factory: pytest.TempPathFactory,
    stride: int, dilation: int, kernel: int, depthwise: bool, cuts: list[int],
) -> None:  # fmt: skip
    if stride > 1:
        dilation, kernel = 1, 2 * stride
    left = (kernel - 1) * dilation - (stride - 1)
    random = np.random.default_rng(kernel)
    groups = 3 if depthwise else 1
    arrays = {
        "weight": random.standard_normal((3, 3 // groups, kernel)).astype(np.float32),
        "bias": random.standard_normal(3).astype(np.float32),
    }
    shapes = []

    def build(graph: GraphBuilder) -> None:
        states = StatePorts(graph)
        result = causal_conv(
            graph, graph.input("x", [1, 3, "T"]), parameters(arrays), states,
            inputs=3, outputs=3, kernel=kernel, left=left, stride=stride, dilation=dilation,
            groups=groups,
        )  # fmt: skip
        graph.output(result, "y", [1, 3, "frames"])
        shapes.extend(states.shapes)

    path = save_graph(tmp_path_factory.mktemp("conv"), build)
    audio = random.standard_normal((1, 3, sum(cuts) * stride)).astype(np.float32)
    padded = np.pad(audio[0], ((0, 0), (left, 0))).astype(np.float64)
    exact = np.zeros((3, sum(cuts)))
    for out in range(3):
        for frame in range(sum(cuts)):
            taps = padded[:, frame * stride : frame * stride + kernel * dilation : dilation]
            seen = taps[out : out + 1] if depthwise else taps
            exact[out, frame] = (seen * arrays["weight"][out]).sum() + arrays["bias"][out]
    states = {f"state_{i}": np.zeros(shape, np.float32) for i, shape in enumerate(shapes)}
    found, start = [], 0
    for cut in cuts:
        results = run(path, x=audio[..., start : start + cut * stride], **states)
        states = {name: results[f"next_{name}"] for name in states}
        found.append(results["y"][0])
        start += cut * stride
    np.testing.assert_allclose(np.concatenate(found, axis=1), exact, atol=1e-4)


@pytest.mark.parametrize("stride", [1, 2, 3, 5])
def test_an_upsampling_is_the_transposed_convolution_less_its_tail(
    tmp_path: Path, stride: int
) -> None:
    random = np.random.default_rng(stride)
    weight = random.standard_normal((3, 2, 2 * stride)).astype(np.float32)
    bias = random.standard_normal(2).astype(np.float32)
    value = random.standard_normal((1, 3, 6)).astype(np.float32)

    def build(graph: GraphBuilder) -> None:
        result = causal_upsample(
            graph, graph.input("x", [1, 3, "T"]), parameters({"weight": weight, "bias": bias}),
            StatePorts(graph), inputs=3, outputs=2, stride=stride,
        )  # fmt: skip
        graph.output(result, "y", [1, 2, "frames"])

    exact = np.zeros((2, 8 * stride))
    for frame in range(6):
        for tap in range(2 * stride):
            exact[:, frame * stride + tap] += value[0, :, frame] @ weight[:, :, tap]
    exact = exact[:, : 6 * stride] + bias[:, None]
    zeros = np.zeros((1, 3, 1), np.float32)
    found = run(save_graph(tmp_path, build), x=value, state_0=zeros)["y"][0]
    np.testing.assert_allclose(found, exact, atol=1e-5)
