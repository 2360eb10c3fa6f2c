"""Integer weights: error bounds, extreme blocks, and the layouts that ONNX Runtime reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graph_bench import run, save_graph, weight_of
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from device_profiles.weight_formats import LayerKind, WeightFormat
from export.graph.builder import GraphBuilder
from export.graph.linear import LinearWeight, linear
from export.weights.int4 import Int4Blocks, block_int4
from export.weights.plan import WeightPlan
from export.weights.quantize import block_int8, block_uint8, per_channel_int8

SIZES = st.tuples(st.integers(1, 5), st.integers(1, 70))
MATRICES = hnp.arrays(
    np.float32, SIZES, elements=st.floats(-(2.0**100), 2.0**100, width=32, allow_subnormal=True)
)


def split(rows: np.ndarray, block: int) -> np.ndarray:
    count = -(-rows.shape[1] // block)
    return np.pad(rows, ((0, 0), (0, count * block - rows.shape[1]))).reshape(
        len(rows), count, block
    )


def decode_int8(
    codes: np.ndarray, scale: np.ndarray, zeros: np.ndarray | None = None
) -> np.ndarray:
    zero = 128 if zeros is None else zeros[..., None].astype(np.float64)
    return (codes.astype(np.float64) - zero) * scale[..., None]


def nibbles(packed: np.ndarray) -> np.ndarray:
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(*packed.shape[:-1], -1)


def decode_int4(found: Int4Blocks) -> np.ndarray:
    zeros = np.float64(8)
    if found.zeros is not None:
        zeros = nibbles(found.zeros)[:, : found.scales.shape[1], None].astype(np.float64)
    return (nibbles(found.packed) - zeros) * found.scales[..., None]


def plain_int4(blocks: np.ndarray, symmetric: bool) -> np.ndarray:
    """Rounded to the nearest of 16 values that span the block, nothing searched."""
    if symmetric:
        index = np.abs(blocks).argmax(axis=2)[..., None]
        step = np.take_along_axis(blocks, index, axis=2) / -8
        low, high = -8, 7
    else:
        bottom = np.minimum(blocks.min(axis=2, keepdims=True), 0)
        step = (np.maximum(blocks.max(axis=2, keepdims=True), 0) - bottom) / 15
        step = np.where(np.abs(step) < 1e-30, 1, step)
        low, high = np.rint(bottom / step), np.rint(bottom / step) + 15
    step = np.where(np.abs(step) < 1e-30, 1, step)
    return np.clip(np.rint(blocks / step), low, high) * step


@given(rows=MATRICES)
def test_per_channel_int8_is_within_half_a_step(rows: np.ndarray) -> None:
    codes, scale = per_channel_int8(rows)
    assert codes.dtype == np.int8
    assert codes.min() >= -127
    assert (scale > 0).all()
    error = np.abs(codes * scale[:, None].astype(np.float64) - rows)
    assert (error <= scale[:, None] * 0.5001 + 1e-28).all()


@given(rows=MATRICES, block=st.sampled_from([16, 32, 128]))
def test_block_int8_is_within_half_a_step(rows: np.ndarray, block: int) -> None:
    codes, scale = block_int8(rows, block)
    blocks = split(rows, block)
    assert codes.shape == blocks.shape
    assert codes.min() >= 1, "symmetric: -128 is not used"
    error = np.abs(decode_int8(codes, scale) - blocks)
    assert (error <= scale[..., None] * 0.5001 + 1e-28).all()


@given(rows=MATRICES, block=st.sampled_from([16, 32, 128]))
def test_block_uint8_is_within_half_a_step_and_keeps_zero(rows: np.ndarray, block: int) -> None:
    codes, scale, zeros = block_uint8(rows, block)
    assert codes.dtype == zeros.dtype == np.uint8
    blocks = split(rows, block)
    found = decode_int8(codes, scale, zeros)
    # Where the zero point was rounded towards an end of the range, that end is cut by half a step.
    assert (np.abs(found - blocks) <= scale[..., None] * 1.001 + 1e-28).all()
    assert (found[blocks == 0] == 0).all()


def test_8_bit_zero_points_save_a_fifth_of_the_error() -> None:
    rows = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32)
    blocks = split(rows, 32)
    with_zeros = np.square(decode_int8(*block_uint8(rows, 32)) - blocks).sum()
    assert with_zeros < 0.8 * np.square(decode_int8(*block_int8(rows, 32)) - blocks).sum()


@given(rows=MATRICES, block=st.sampled_from([16, 32]), symmetric=st.booleans())
def test_the_int4_search_is_never_worse_than_the_plain_scale(
    rows: np.ndarray, block: int, symmetric: bool
) -> None:
    found = decode_int4(block_int4(rows, block, symmetric=symmetric))
    blocks = split(rows, block).astype(np.float64)
    # Sums are taken in f32 while searching; a tie may fall either way.
    peak = np.abs(blocks).max(axis=2)
    searched = np.square(found - blocks).sum(axis=2)
    allowed = np.square(plain_int4(blocks, symmetric) - blocks).sum(axis=2)
    assert (searched <= allowed * (1 + 1e-4) + peak**2 * 1e-5 + 1e-50).all()


@given(rows=MATRICES, symmetric=st.booleans())
def test_int4_keeps_every_value_near_its_range(rows: np.ndarray, symmetric: bool) -> None:
    found = decode_int4(block_int4(rows, 32, symmetric=symmetric))
    assert np.isfinite(found).all()
    peak = np.abs(split(rows, 32)).max(axis=2)
    assert (np.abs(found).max(axis=2) <= peak * 1.15 + 1e-28).all()


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("value", [3.5, -3.5])
def test_int4_reaches_the_largest_value_exactly_where_that_is_best(
    symmetric: bool, value: float
) -> None:
    row = np.zeros((1, 32), np.float32)
    row[0, 5] = value
    found = decode_int4(block_int4(row, 32, symmetric=symmetric))[0, 0]
    np.testing.assert_allclose(found, row[0], rtol=1e-6)


@pytest.mark.parametrize(
    ("symmetric", "heavy", "share"),
    [(False, False, 0.95), (True, False, 0.96), (False, True, 0.96), (True, True, 0.97)],
)
def test_the_int4_search_is_worth_it(symmetric: bool, heavy: bool, share: float) -> None:
    random = np.random.default_rng(0)
    draw = random.standard_t(4, (256, 256)) if heavy else random.standard_normal((256, 256))
    rows = draw.astype(np.float32)
    error = np.square(
        decode_int4(block_int4(rows, 32, symmetric=symmetric)) - split(rows, 32)
    ).sum()
    assert error < share * np.square(plain_int4(split(rows, 32), symmetric) - split(rows, 32)).sum()


@pytest.mark.parametrize(
    ("block", "heavy", "share"),
    [(32, False, 0.93), (32, True, 0.75), (128, False, 0.99), (128, True, 0.82)],
)
def test_zero_points_save_error(block: int, heavy: bool, share: float) -> None:
    random = np.random.default_rng(0)
    draw = random.standard_t(4, (256, 256)) if heavy else random.standard_normal((256, 256))
    rows = draw.astype(np.float32)
    with_zeros, without = (
        np.square(decode_int4(block_int4(rows, block, symmetric=symmetric)) - split(rows, block))
        for symmetric in (False, True)
    )
    assert with_zeros.sum() < share * without.sum()


def test_zeros_stay_zeros() -> None:
    rows = np.zeros((3, 40), np.float32)
    assert not per_channel_int8(rows)[0].any()
    assert not decode_int8(*block_int8(rows, 32)).any()
    assert not decode_int8(*block_uint8(rows, 32)).any()
    assert not decode_int4(block_int4(rows, 32)).any()
    assert not decode_int4(block_int4(rows, 32, symmetric=True)).any()


@pytest.mark.parametrize("tiny", [1e-45, 1e-42, 3e-39, 1e-30])
def test_values_near_nothing_do_not_overflow(tiny: float) -> None:
    with np.errstate(all="raise", under="ignore"):
        rows = np.full((2, 32), tiny, np.float32)
        rows[:, ::3] *= -1
        for found in (
            per_channel_int8(rows)[0] * per_channel_int8(rows)[1][:, None],
            decode_int8(*block_int8(rows, 32)),
            decode_int8(*block_uint8(rows, 32)),
            decode_int4(block_int4(rows, 32)),
            decode_int4(block_int4(rows, 32, symmetric=True)),
        ):
            assert (np.abs(found) <= tiny * 1.01).all()


@settings(max_examples=40, deadline=None)
@given(
    outputs=st.integers(1, 40), inputs=st.integers(2, 300), rows=st.integers(1, 5),
    format_=st.sampled_from([each for each in WeightFormat if each.block]),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_matmulnbits_reads_what_was_written(
    tmp_path_factory: pytest.TempPathFactory,
    outputs: int, inputs: int, rows: int, format_: WeightFormat, seed: int,
) -> None:  # fmt: skip
    random = np.random.default_rng(seed)
    weight = random.standard_normal((outputs, inputs)).astype(np.float32)
    value = random.standard_normal((1, rows, inputs)).astype(np.float32)
    block = format_.block if inputs >= format_.block else 32
    if format_.bits == 8:
        quantize = block_uint8 if block == 32 else block_int8
        decoded = decode_int8(*quantize(weight, block))
    else:
        decoded = decode_int4(block_int4(weight, block, symmetric=format_.symmetric))
    decoded = decoded.reshape(outputs, -1)[:, :inputs]
    found = multiply(tmp_path_factory.mktemp("bits"), value, weight, format_.value)
    # Activations may be quantized to 8 bits on the way; a wrong layout would be all wrong.
    exact = value @ decoded.T
    norm = np.linalg.norm(value, axis=-1)[..., None] * np.linalg.norm(decoded, axis=1)
    assert (np.abs(found - exact) <= 0.02 * norm + 1e-5).all()


@settings(max_examples=20, deadline=None)
@given(
    outputs=st.integers(1, 40), inputs=st.integers(2, 300), rows=st.integers(1, 5),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_dynamicquantizematmul_reads_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, outputs: int, inputs: int, rows: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    weight = random.standard_normal((outputs, inputs)).astype(np.float32)
    value = random.standard_normal((1, rows, inputs)).astype(np.float32)
    codes, scale = per_channel_int8(weight)
    decoded = codes * scale[:, None].astype(np.float64)
    found = multiply(tmp_path_factory.mktemp("dynamic"), value, weight, "int8")
    exact = value @ decoded.T
    # One scale for the whole activation: half a step of it on each input.
    step = (max(value.max(), 0) - min(value.min(), 0)) / 255
    assert (np.abs(found - exact) <= 0.51 * step * np.abs(decoded).sum(axis=1) + 1e-4).all()


def test_by_row_a_large_row_costs_the_others_nothing(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    weight = random.standard_normal((24, 96)).astype(np.float32)
    value = random.standard_normal((1, 4, 96)).astype(np.float32)
    value[0, 1, 7] = 3000
    value[0, 2] *= np.float32(1e-4)
    value[0, 3] = 0
    exact = value @ weight.T
    by_row = multiply(tmp_path / "rows", value, weight, "int8-rows")
    at_once = multiply(tmp_path / "int8", value, weight, "int8")
    error, spread = (np.linalg.norm(found - exact, axis=-1)[0] for found in (by_row, at_once))
    size = np.linalg.norm(exact, axis=-1)[0]
    assert (error[:3] < 0.02 * size[:3]).all()
    assert spread[0] > 0.5 * size[0]  # what the plain format does to the same rows
    assert not by_row[0, 3].any()


@pytest.mark.parametrize("scale", [1e-42, 1e-30, 1e30])
def test_by_row_extreme_rows_stay_finite(tmp_path: Path, scale: float) -> None:
    weight = np.eye(16, dtype=np.float32)
    value = np.linspace(-1, 1, 32, dtype=np.float32).reshape(1, 2, 16) * np.float32(scale)
    found = multiply(tmp_path, value, weight, "int8-rows")
    np.testing.assert_allclose(found, value, atol=np.float32(scale) * 0.01)


@pytest.mark.parametrize("plan", ["f32", "f16"])
@pytest.mark.parametrize(("outputs", "inputs"), [(3, 5), (33, 70), (64, 128)])
def test_float_formats_multiply_with_the_stored_values(
    tmp_path: Path, plan, outputs: int, inputs: int
) -> None:
    random = np.random.default_rng(0)
    weight = random.standard_normal((outputs, inputs)).astype(np.float32)
    value = random.standard_normal((1, 3, inputs)).astype(np.float32)
    stored = weight if plan == "f32" else weight.astype(np.float16).astype(np.float32)
    found = multiply(tmp_path, value, weight, plan)
    np.testing.assert_allclose(found, value @ stored.T, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("piece", [1, 100, 1000])
@pytest.mark.parametrize("plan", ["f32", "f16", "int8", "int4"])
def test_the_piece_size_does_not_change_the_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plan, piece: int
) -> None:
    random = np.random.default_rng(0)
    parts = [random.standard_normal((size, 70)).astype(np.float32) for size in (7, 1, 12)]
    stacked = LinearWeight.stacked(*map(weight_of, parts))

    def build(graph: GraphBuilder) -> None:
        value = graph.input("x", [1, "S", 70])
        for kind in (LayerKind.LM_BASE_QKV, LayerKind.FLOW_QKV):
            graph.output(linear(graph, value, stacked, kind), f"y_{kind.value}", [1, "S", 20])

    whole = save_graph(tmp_path / "whole", build, plan)
    monkeypatch.setattr("export.graph.linear._PIECE", piece)
    pieces = save_graph(tmp_path / "pieces", build, plan)
    for name in ("graph.onnx", "graph.weights"):
        assert (whole.parent / name).read_bytes() == (pieces.parent / name).read_bytes()
    value = random.standard_normal((1, 2, 70)).astype(np.float32)
    exact = value @ np.concatenate(parts).T
    for found in run(whole, x=value).values():
        assert np.linalg.norm(found - exact) < 0.2 * np.linalg.norm(exact)


def test_stacked_layers_give_any_range_of_rows() -> None:
    parts = [np.full((size, 2), number, np.float32) for number, size in enumerate((3, 1, 4))]
    stacked, whole = LinearWeight.stacked(*map(weight_of, parts)), np.concatenate(parts)
    for start in range(8):
        for stop in range(start + 1, 9):
            assert np.array_equal(stacked.rows(start, stop), whole[start:stop])


@pytest.mark.parametrize("name", ["f32", "f16", "int8", "int4"])
def test_a_plan_has_a_format_for_every_kind_of_layer(name) -> None:
    plan = WeightPlan.named(name)
    assert plan.name == name
    assert all(isinstance(plan[kind], WeightFormat) for kind in LayerKind)


def multiply(folder: Path, value: np.ndarray, weight: np.ndarray, format_: str) -> np.ndarray:
    outputs, inputs = weight.shape

    def build(graph: GraphBuilder) -> None:
        x = graph.input("x", [1, "S", inputs])
        result = linear(graph, x, weight_of(weight), LayerKind.FLOW_QKV)
        graph.output(result, "y", [1, "S", outputs])

    plan = WeightPlan.named("f32", {"flow.qkv": format_})
    return run(save_graph(folder, build, plan), x=value)["y"]
