"""The LM over an int8 cache: ranges that hold for every position, and results that stay near."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kv_types import needs_int8, poison

from boardvoice.main import main
from edge_runtime.backends.int8_cache import PROBE
from edge_runtime.backends.ort import OrtBackend
from edge_runtime.bundle import Bundle
from edge_runtime.kv_cache import KVCache, KVShape, KVType
from edge_runtime.voxcpm2.lm import LanguageModel
from edge_runtime.voxcpm2.model import read_spec
from export.graph.int8_cache import KVRanges, with_int8_cache

BACKEND = OrtBackend(threads=1, spinning=False)


def lm_of(bundle: Path, variant: str = "") -> onnx.ModelProto:
    return onnx.load(bundle / f"graphs/lm{variant}.onnx", load_external_data=False)


def attention(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    return [node for node in model.graph.node if node.op_type == "GroupQueryAttention"]


@pytest.fixture
def bundle(make_bundle) -> Path:
    return make_bundle("tiny", "f32", kv="int8")


@given(angle=st.floats(0, 100), seed=st.integers(0, 9))
def test_the_range_of_rotated_keys_holds_at_every_position(angle: float, seed: int) -> None:
    keys = np.random.default_rng(seed).standard_normal((1, 2, 20, 16)).astype(np.float32)
    ranges = KVRanges(frozenset({"key"}))
    ranges.observe({"key": keys}, 20)
    first, second = np.split(keys, 2, axis=-1)
    turned = np.concatenate(
        [
            first * np.cos(angle) - second * np.sin(angle),
            first * np.sin(angle) + second * np.cos(angle),
        ],
        axis=-1,
    )
    assert (np.abs(turned).max(axis=2)[0] <= ranges.largest["key"] * (1 + 1e-5)).all()
    again = KVRanges(frozenset({"key"}))
    again.observe({"key": turned.astype(np.float32)}, 20)
    assert np.allclose(again.largest["key"], ranges.largest["key"], rtol=1e-4)


def test_ranges_take_in_valid_rows_only_and_grow() -> None:
    ranges = KVRanges(frozenset())
    values = np.ones((1, 1, 8, 16), np.float32)
    poison(values[:, :, 3:])
    ranges.observe({"value": values}, 3)
    assert (ranges.largest["value"] == 1).all()
    ranges.observe({"value": values * -2}, 2)
    ranges.observe({"value": values * 0.5}, 1)
    assert (ranges.largest["value"] == 2).all()
    assert ranges.rows == 6


def test_a_scale_has_the_margin_and_silent_channels_a_share_of_their_heads() -> None:
    ranges = KVRanges(frozenset(), {"value": np.array([[4, 2, 0], [0, 0, 0]], np.float32)})
    scale = ranges.scale("value", 1.5)
    assert scale.shape == (1, 2, 1, 3)
    assert scale.dtype == np.float32
    assert np.allclose(scale[0, 0, 0] * 127, [6, 3, 6 / 32])
    assert (scale > 0).all()


def test_the_graph_differs_in_its_cache_alone(bundle: Path) -> None:
    plain, small = lm_of(bundle), lm_of(bundle, ".kv_int8")
    assert len(plain.graph.node) == len(small.graph.node)
    scales = {tensor.name: tensor for tensor in small.graph.initializer}
    for tensor in plain.graph.initializer:
        assert scales.pop(tensor.name) == tensor
    spec = read_spec(Bundle.open(bundle))
    assert len(scales) == 2 * spec.kv.layers
    for old, new in zip(plain.graph.node, small.graph.node, strict=True):
        if old.op_type != "GroupQueryAttention":
            assert old == new
            continue
        assert list(new.input)[: len(old.input)] == list(old.input)
        assert list(new.input[12:]) == [f"{name}.scale" for name in old.input[3:5]]
    kinds = {port.name: port.type.tensor_type.elem_type for port in small.graph.input}
    assert {kinds[f"past_{kind}_0"] for kind in ("key", "value")} == {onnx.TensorProto.INT8}
    assert kinds["rows"] == onnx.TensorProto.FLOAT


def test_no_weights_are_added(bundle: Path, f32_bundle: Path) -> None:
    files = Bundle.open(bundle).manifest.files
    before = Bundle.open(f32_bundle).manifest.files
    assert set(files) - set(before) == {"graphs/lm.kv_int8.onnx"}
    # The golden outputs are told apart: they hold one for each type of cache.
    before.pop("golden.json", None)
    assert all(files[name] == before[name] for name in before)


def test_the_graph_says_which_keys_are_rotated(make_bundle) -> None:
    # The residual LM of VoxCPM2 goes without.
    assert KVRanges.of(lm_of(make_bundle("tiny"))).rotary == {f"past_key_{i}" for i in range(3)}
    assert KVRanges.of(lm_of(make_bundle("no-rope"))).rotary == set()


@needs_int8
@pytest.mark.parametrize("recipe", ["tiny", "head-24", "no-rope"])
def test_outputs_stay_near_those_of_an_f32_cache(make_bundle, recipe: str) -> None:
    folder = make_bundle(recipe, "f32", kv="int8")
    spec = read_spec(Bundle.open(folder))
    random = np.random.default_rng(0)
    rows = random.standard_normal((60, spec.hidden)).astype(np.float32)
    flags = (np.arange(60) >= 30).astype(np.float32)

    def outputs(variant: str, dtype: KVType) -> np.ndarray:
        kv = spec.kv
        shape = KVShape(kv.layers, kv.num_kv_heads, kv.head_size, kv.max_rows, 16, dtype)
        lm = LanguageModel(
            BACKEND.load(folder / f"graphs/lm{variant}.onnx"), spec, KVCache(shape, 1)
        )
        lm.prefill(rows[:40], flags[:40])
        found = [lm.output.mu.copy()]
        for row in rows[40:]:
            lm.step(row[None, None])
            found.append(lm.output.mu.copy())
        return np.concatenate(found)

    expected, found = outputs("", "f32"), outputs(".kv_int8", "int8")
    noise = np.square(expected - found).sum() / np.square(expected).sum()
    assert 0 < noise < 10**-2


@needs_int8
@pytest.mark.parametrize("pieces", [(40,), (1, 39), (16, 16, 8), (39, 1), (1,) * 40])
def test_any_pieces_write_the_same_bits_and_nothing_beyond(
    tmp_path: Path, pieces: tuple[int, ...]
) -> None:
    random = np.random.default_rng(1)
    rows = random.standard_normal((1, 40, 64)).astype(np.float32)
    file = tmp_path / "layer.onnx"
    file.write_bytes(_layer().SerializeToString())
    graph = BACKEND.load(file)

    def run(cuts: tuple[int, ...], capacity: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        keys = np.empty((1, 1, capacity, 16), np.int8)
        poison(keys)
        values, heads, start = keys.copy(), [], 0
        for count in cuts:
            binding, total = graph.bind(), start + count
            piece = np.ascontiguousarray(rows[:, start:total])
            out = np.empty((1, count, 32), np.float32)
            last, whole = np.array([total - 1], np.int32), np.array(total, np.int32)
            for name, array in (("rows", piece), ("seqlens_k", last), ("total_rows", whole)):
                binding.input(name, array)
            for kind, buffer in (("key", keys), ("value", values)):
                binding.input(f"past_{kind}_0", buffer)
                binding.output(f"present_{kind}_0", buffer)
            binding.output("heads", out)
            binding.run()
            heads.append(out)
            start = total
        return keys, values, np.concatenate(heads, axis=1)

    expected, found = run((40,), 40), run(pieces, 64)
    for wanted, got in zip(expected[:2], found[:2], strict=True):
        assert np.array_equal(wanted, got[:, :, :40])
        assert (got[:, :, 40:] == 127).all()
    assert np.allclose(expected[2], found[2], atol=1e-5)


def _layer() -> onnx.ModelProto:
    return onnx.load(PROBE)


@pytest.mark.parametrize(
    ("dtype", "options", "there"),
    [
        ("f32", [], False),
        ("f32", ["--int8-kv"], True),
        ("int8", [], True),
        ("int8", ["--no-int8-kv"], False),
    ],
)
def test_the_option_or_the_profile_decides(
    tiny_checkpoint: Path, tmp_path: Path, dtype: str, options: list[str], there: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    profile = tmp_path / "mine.yaml"
    profile.write_text(f"name: mine\ntitle: mine\nweights: f32\nkv: {{dtype: {dtype}}}\n")
    out = tmp_path / "bundle"
    arguments = ["export", "voxcpm2", tiny_checkpoint, "--out", out, "--profile", profile, "--json"]
    assert main([str(argument) for argument in (*arguments, *options)]) == 0
    assert json.loads(capsys.readouterr().out)["bundle"] == str(out)
    assert ("graphs/lm.kv_int8.onnx" in Bundle.open(out).manifest.files) is there
    shutil.rmtree(out)


def test_the_pass_leaves_its_input_alone(bundle: Path) -> None:
    model = lm_of(bundle)
    before = model.SerializeToString()
    ranges = KVRanges.of(model)
    for node in attention(model):
        for name in node.input[3:5]:
            ranges.largest[name] = np.ones((2, 16), np.float32)
    with_int8_cache(model, ranges, 1.5)
    assert model.SerializeToString() == before
