"""The flow in standard operators alone computes what it does in ONNX Runtime's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from export.graph.portable import with_standard_operators
from export.synthetic import RECIPES, make_checkpoint
from export.voxcpm2.exporter import export_voxcpm2
from export.weights.plan import WeightPlan


def outputs(path: Path, batch: int) -> np.ndarray:
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    random = np.random.default_rng(5)
    feeds = {
        port.name: random.standard_normal(
            [size if isinstance(size, int) else batch for size in port.shape]
        ).astype(np.float32)
        for port in session.get_inputs()
    }
    return session.run(None, feeds)[0]


def snr(wanted: np.ndarray, found: np.ndarray) -> float:
    return float(10 * np.log10((wanted**2).sum() / ((wanted - found) ** 2).sum()))


@pytest.mark.parametrize("recipe", ["tiny", "no-rope", "head-24", "mup", "other-depths"])
@pytest.mark.parametrize("batch", [1, 2])
def test_f32_results_are_the_same(recipe: str, batch: int, make_bundle) -> None:
    graphs = make_bundle(recipe, "f32") / "graphs"
    own, standard = (outputs(graphs / f"flow{x}.onnx", batch) for x in ("", ".portable"))
    assert snr(own, standard) > 110


@pytest.mark.parametrize(("weights", "least"), [("f16", 110), ("int8", 30)])
def test_quantized_weights_are_the_same_and_activations_are_not_rounded(
    weights: str, least: float, make_bundle, dynamic_int8_bundle: Path
) -> None:
    bundle = dynamic_int8_bundle if weights == "int8" else make_bundle("tiny", weights)
    graphs = bundle / "graphs"
    own, standard = (outputs(graphs / f"flow{x}.onnx", 2) for x in ("", ".portable"))
    assert snr(own, standard) > least


def test_only_standard_operators_over_the_same_weight_file(dynamic_int8_bundle: Path) -> None:
    path = dynamic_int8_bundle / "graphs/flow.portable.onnx"
    model = onnx.load(path, load_external_data=False)
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 19)]
    assert model.ir_version <= 10
    assert {node.domain for node in model.graph.node} == {""}
    for node in model.graph.node:
        onnx.defs.get_schema(node.op_type, 19)
    places = {
        entry.value
        for tensor in model.graph.initializer
        for entry in tensor.external_data
        if entry.key == "location"
    }
    assert places == {"flow.weights"}
    onnx.checker.check_model(str(path), full_check=True)


def test_blocks_have_no_standard_form(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint", RECIPES["tiny"])
    plan = WeightPlan.named("int8", {"flow": "int4-32"})
    manifest = export_voxcpm2(checkpoint, tmp_path / "bundle", weights=plan)
    assert "graphs/flow.portable.onnx" not in manifest.files
    model = onnx.load(tmp_path / "bundle/graphs/flow.onnx", load_external_data=False)
    assert with_standard_operators(model) is None
