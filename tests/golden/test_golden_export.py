"""What an export keeps of its graphs' outputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from edge_runtime.bundle import Bundle
from edge_runtime.errors import CheckpointError
from edge_runtime.golden.golden_file import GOLDEN, GoldenFile
from edge_runtime.voxcpm2.spec import VoxCpm2Spec
from export.golden import golden_writer
from export.golden.golden_writer import compute_golden
from export.golden.pieces import pieces
from export.voxcpm2.golden_runs import golden_runs


def golden_of(folder: Path) -> GoldenFile:
    golden = GoldenFile.of(Bundle.open(folder))
    assert golden is not None
    return golden


def test_every_graph_of_a_bundle_has_golden_vectors(make_bundle) -> None:
    folder = make_bundle("tiny", "int8", kv="int8")
    bundle, golden = Bundle.open(folder), golden_of(folder)
    for dtype in {graph.kv_dtype for graph in golden.graphs} - {None}:
        covered = {graph.graph for graph in golden.graphs if graph.kv_dtype in (None, dtype)}
        assert covered == set(bundle.graphs(dtype))
    assert {graph.kv_dtype for graph in golden.graphs} >= {None, "f32", "f16"}


def test_the_file_is_small(int8_bundle: Path) -> None:
    assert Bundle.open(int8_bundle).manifest.files[GOLDEN].size < 200_000


def test_exports_of_one_checkpoint_have_the_same(tiny_checkpoint: Path, tmp_path: Path) -> None:
    from export.voxcpm2.exporter import export_voxcpm2

    for name in ("a", "b"):
        export_voxcpm2(tiny_checkpoint, tmp_path / name, weights="int8")
    assert (tmp_path / "a" / GOLDEN).read_bytes() == (tmp_path / "b" / GOLDEN).read_bytes()


@pytest.mark.parametrize("weights", ["f32", "int8", "int4"])
def test_a_graph_run_in_pieces_gives_what_it_gives_whole(
    make_bundle, weights: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = Bundle.open(make_bundle("tiny", weights))
    spec = VoxCpm2Spec.model_validate(bundle.manifest.model)
    monkeypatch.setattr(golden_writer, "PIECE_BYTES", 100_000)
    model = onnx.load(bundle.path(spec.graphs["lm"]), load_external_data=False)
    assert len(list(pieces(model, 100_000))) > 2
    cut = compute_golden(bundle, golden_runs(bundle, spec))
    whole = GoldenFile.of(bundle)
    assert whole is not None
    for one, other in zip(cut.graphs, whole.graphs, strict=True):
        for run, same in zip(one.runs, other.runs, strict=True):
            for name, output in run.outputs.items():
                wanted = same.outputs[name].values
                error = np.linalg.norm(output.values - wanted) / np.linalg.norm(wanted)
                # Fusions across cuts are gone; nothing else may differ.
                assert 20 * np.log10(error + 1e-12) < -same.least_snr_db
    assert not list(bundle.folder.rglob("*.piece.onnx"))


def test_pieces_hold_every_node_once_and_few_weights(f32_bundle: Path) -> None:
    model = onnx.load(f32_bundle / "graphs/flow.onnx", load_external_data=False)
    found = list(pieces(model, 50_000))
    assert [node.name for piece in found for node in piece.nodes] == [
        node.name for node in model.graph.node
    ]
    given = {port.name for port in model.graph.input}
    for piece in found:
        assert set(piece.inputs) <= given
        given |= set(piece.outputs)
    assert {port.name for port in model.graph.output} <= given


def test_values_that_are_not_finite_end_the_export(
    f32_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = Bundle.open(f32_bundle)
    spec = VoxCpm2Spec.model_validate(bundle.manifest.model)
    plans = [plan for plan in golden_runs(bundle, spec) if plan.graph == "flow_condition"]
    recipe = plans[0].runs[0].inputs["cond"]
    plans[0].runs[0].inputs["cond"] = recipe.model_copy(update={"scale": float("inf")})
    with pytest.raises(CheckpointError, match="not finite for flow_condition"):
        compute_golden(bundle, plans)
