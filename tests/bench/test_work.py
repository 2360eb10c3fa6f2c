"""Multiply-adds and weight bytes, counted by hand beside what the graphs say."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edge_runtime.bench.work import Product, Work, graph_work
from export.synthetic import RECIPES
from export.voxcpm2.config import VoxCpm2Config

CONFIG = VoxCpm2Config.model_validate(RECIPES["tiny"].document())
SIZE, WIDTH, HIDDEN = CONFIG.patch_size, CONFIG.feat_dim, CONFIG.flow.hidden


def stack_macs(spec: object, rows: int, *, last_only: int = 0) -> int:
    """Products with weights of a transformer stack; the last layer's tail for fewer rows."""
    heads, groups, size = spec.num_heads, spec.num_kv_heads, spec.head_size  # type: ignore[attr-defined]
    hidden, ffn = spec.hidden, spec.ffn  # type: ignore[attr-defined]
    qkv = hidden * (heads + 2 * groups) * size
    tail = heads * size * hidden + 3 * hidden * ffn
    layers: int = spec.num_layers  # type: ignore[attr-defined]
    return rows * qkv * layers + tail * (rows * (layers - 1) + (last_only or rows))


def lm_shapes(rows: int) -> dict[str, tuple[int, ...]]:
    hidden = CONFIG.base_lm.hidden
    shapes: dict[str, tuple[int, ...]] = {
        "rows": (1, rows, hidden), "is_audio": (1, rows, 1), "seqlens_k": (1,), "total_rows": ()
    }  # fmt: skip
    return shapes


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize(("weights", "kind"), [("f32", "f32"), ("int8", "int8-")])
def test_the_lm_is_counted_row_by_row(
    make_bundle: object, weights: str, kind: str, rows: int
) -> None:
    path: Path = make_bundle("tiny", weights) / "graphs/lm.onnx"  # type: ignore[operator]
    work = graph_work(path, lm_shapes(rows))
    base, residual = CONFIG.base_lm, CONFIG.residual_lm
    hidden, latent = base.hidden, CONFIG.scalar_quantization_latent_dim
    lm = stack_macs(base, rows) + stack_macs(residual, rows, last_only=1)
    lm += rows * 2 * hidden * hidden
    heads = rows * 2 * hidden * latent + 2 * hidden * HIDDEN + hidden * hidden + 2 * hidden
    assert work.uncounted == 0
    found = sum(count for name, count in work.macs.items() if name.startswith(kind))
    assert found == lm + (heads if kind == "f32" else 0)
    assert sum(work.macs.values()) == lm + heads


def test_weights_are_read_once_whatever_the_rows(int8_bundle: Path) -> None:
    path = int8_bundle / "graphs/lm.onnx"
    one, many = (graph_work(path, lm_shapes(rows)).weight_bytes for rows in (1, 9))
    size = path.with_suffix(".weights").stat().st_size
    # Norms and rotation tables are no products.
    assert 0.5 * size < one == many <= size


@pytest.mark.parametrize("batch", [1, 2])
def test_the_estimator_costs_by_guidance(dynamic_int8_bundle: Path, batch: int) -> None:
    shapes = {"mu": (batch, 2, HIDDEN)}
    work = graph_work(dynamic_int8_bundle / "graphs/flow.onnx", shapes)
    rows = 2 + 1 + 2 * SIZE
    expected = batch * stack_macs(CONFIG.flow, rows, last_only=SIZE)
    spec = CONFIG.flow
    # In the last layer only the wanted rows are queried.
    unasked = (rows - SIZE) * batch * spec.hidden * spec.num_heads * spec.head_size
    assert work.macs["int8"] == expected - unasked
    layers = [each for each in work.products.elements() if each.format == "int8"]
    assert {each.rows for each in layers} == {batch * rows, batch * SIZE}
    assert sum(each.rows * each.inputs * each.outputs for each in layers) == work.macs["int8"]
    assert work.uncounted == 0


@pytest.mark.parametrize("weights", ["f32", "f16", "int8", "int4"])
@pytest.mark.parametrize(
    ("graph", "shapes"),
    [
        ("vae_decoder", {"latent": (1, WIDTH, SIZE)}),
        ("vae_encoder", {"audio": (1, 1, 640)}),
        ("patch_encoder", {"patches": (1, SIZE, WIDTH)}),
        ("flow_time", {"t": (10,), "dt": (10,)}),
        ("flow_condition", {"cond": (1, SIZE, WIDTH)}),
        ("lm.kv_f16", lm_shapes(1)),
    ],
)
def test_every_product_of_every_graph_is_counted(
    make_bundle: object, weights: str, graph: str, shapes: dict[str, tuple[int, ...]]
) -> None:
    bundle: Path = make_bundle("tiny", weights)  # type: ignore[operator]
    work = graph_work(bundle / f"graphs/{graph}.onnx", shapes)
    assert work.uncounted == 0
    assert sum(work.macs.values()) > 0
    if graph == "flow_condition":
        assert work.macs == {"f32": SIZE * WIDTH * HIDDEN}
        # Stored f16, widened when the session loads: what is read is f32.
        assert work.weight_bytes == 4 * WIDTH * HIDDEN


def save(path: Path, nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray]) -> Path:
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, "T"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 19), helper.make_opsetid("somewhere", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets), path)
    return path


def test_convolutions_are_counted_with_groups_and_strides(tmp_path: Path) -> None:
    weight = np.zeros((6, 2, 3), np.float32)
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], group=2, strides=[2])]
    work = graph_work(save(tmp_path / "g.onnx", nodes, {"w": weight}), {"x": (1, 4, 11)})
    assert work.products == {}
    # 5 positions x 6 channels, each over 2 channels x 3 taps.
    assert (work.macs, work.weight_bytes) == ({"f32": 5 * 6 * 2 * 3}, weight.nbytes)


def test_transposed_convolutions_are_counted_by_their_input(tmp_path: Path) -> None:
    nodes = [helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[5])]
    path = save(tmp_path / "g.onnx", nodes, {"w": np.zeros((4, 3, 10), np.float32)})
    assert graph_work(path, {"x": (1, 4, 7)}).macs == {"f32": 7 * 4 * 3 * 10}


def test_products_of_activations_read_no_weights(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["x", "t"], ["y"]),
    ]
    work = graph_work(save(tmp_path / "g.onnx", nodes, {}), {"x": (1, 4, 7)})
    assert (work.macs, work.weight_bytes) == ({"f32": 4 * 7 * 4}, 0)


def test_a_product_of_unknown_size_is_said_to_be_uncounted(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Strange", ["x"], ["s"], domain="somewhere"),
        helper.make_node("MatMul", ["s", "w"], ["y"]),
    ]
    path = save(tmp_path / "g.onnx", nodes, {"w": np.zeros((7, 2), np.float32)})
    work = graph_work(path, {"x": (1, 4, 7)})
    assert (work.macs, work.uncounted) == ({}, 1)


def test_work_adds_up() -> None:
    total = Work()
    product = Product("f32", 1, 2, 3)
    total.add(Work({"f32": 2, "int8": 3}, 10, Counter({product: 2}), 1), 4)
    total.add(Work({"f32": 1}, 1))
    assert total == Work({"f32": 9, "int8": 12}, 41, Counter({product: 8}), 4)
