"""Formats chosen per layer kind: in the graphs, in the manifest, by profile and by option."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from boardvoice.main import main
from device_profiles.weight_formats import LayerKind, PlanName
from edge_runtime.bundle import Bundle
from edge_runtime.errors import UsageError
from export.voxcpm2.exporter import export_voxcpm2
from export.weights.plan import WeightPlan

CHOICES = {"lm.residual": "int4-32", "lm.*.down": "int8-32", "flow.down": "f32", "head.stop": "f16"}


@pytest.fixture(scope="module")
def mixed_bundle(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("mixed") / "bundle"
    export_voxcpm2(tiny_checkpoint, out, weights=WeightPlan.named("int8", CHOICES))
    return out


def products(bundle: Path, graph: str) -> dict[str, str]:
    """Operator, with its bits, of each linear layer, by the layer's place in the graph."""
    model = onnx.load(str(bundle / f"graphs/{graph}.onnx"), load_external_data=False)
    found = {}
    for node in model.graph.node:
        if node.name.endswith("/product"):
            bits = [a.i for a in node.attribute if a.name == "bits"]
            found[node.name.removesuffix("/product")] = f"{node.op_type}{bits[0] if bits else ''}"
    return found


def test_each_layer_is_written_in_the_format_of_its_kind(mixed_bundle: Path) -> None:
    lm, flow = products(mixed_bundle, "lm"), products(mixed_bundle, "flow")
    assert lm["base_lm/0/attention/qkv"] == lm["base_lm/0/mlp/gate_up"] == "MatMulNBits8"
    assert lm["residual_lm/0/attention/qkv"] == "MatMulNBits4"
    assert lm["residual_lm/0/attention/output"] == "MatMulNBits4"
    assert lm["residual_lm/0/mlp/down"] == lm["base_lm/0/mlp/down"] == "MatMulNBits8"
    assert lm["fusion"] == "MatMulNBits8"
    assert flow["decoder/0/mlp/down"] == "MatMul"
    assert flow["decoder/0/mlp/gate_up"] == "DynamicQuantizeMatMul"


def test_the_manifest_records_the_format_of_every_kind(mixed_bundle: Path) -> None:
    manifest = Bundle.open(mixed_bundle).manifest
    assert manifest.weights == "int8"
    assert set(manifest.formats) == {kind.value for kind in LayerKind}
    for kind, name in {
        "lm.base.qkv": "int8-32", "lm.base.down": "int8-32", "lm.residual.down": "int8-32",
        "lm.residual.qkv": "int4-32", "flow.down": "f32", "flow.qkv": "int8",
        "head.stop": "f16", "head.mu": "f32", "embedding": "f16",
    }.items():  # fmt: skip
        assert manifest.formats[kind] == name


@pytest.mark.parametrize(
    ("choices", "named"),
    [
        ({"lms": "f32"}, "no layer kind is called 'lms'"),
        ({"lm": "int4"}, "lm.base.qkv cannot be 'int4'; it may be f32, f16, int8, int8-rows"),
        ({"embedding": "int8"}, "embedding cannot be 'int8'; it may be f32, f16"),
    ],
)
def test_a_wrong_choice_names_the_kind_and_what_is_allowed(choices, named: str) -> None:
    with pytest.raises(UsageError, match="Weight format: ") as caught:
        WeightPlan.named("int8", choices)
    assert named in str(caught.value)


def test_an_unknown_plan_is_told_which_there_are() -> None:
    name: PlanName = "int2"  # type: ignore[assignment]
    with pytest.raises(UsageError, match=r"'int2'.*f32, f16, int8, int4"):
        WeightPlan.named(name)


def exported(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, str]:
    assert main(["export", "voxcpm2", *arguments, "--json", "--force"]) == 0
    found: dict[str, str] = json.loads(capsys.readouterr().out)["formats"]
    return found


def test_options_come_before_the_profile_and_the_last_one_wins(
    tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    board = tmp_path / "mine.yaml"
    board.write_text(
        "name: mine\ntitle: Mine\nweights: {plan: int4, formats: {flow: int8-128, head: f16}}\n"
    )
    common = [str(tiny_checkpoint), "--out", str(tmp_path / "out"), "--profile", str(board)]

    found = exported(capsys, *common)
    assert (found["lm.base.qkv"], found["flow.qkv"], found["head.mu"]) == (
        "int4-32", "int8-128", "f16",
    )  # fmt: skip
    found = exported(capsys, *common, "--format", "flow=f32", "--format", "flow=int8-32")
    assert (found["lm.base.qkv"], found["flow.qkv"], found["head.mu"]) == (
        "int4-32", "int8-32", "f16",
    )  # fmt: skip
    # The profile's formats are changes of its own plan.
    found = exported(capsys, *common, "--weights", "int8")
    assert found == WeightPlan.named("int8").as_text()


@pytest.mark.parametrize("text", ["lm", "lm=", "=f32", "lm=int2", "lmx=f32", ""])
def test_a_wrong_option_is_a_usage_error_and_writes_nothing(
    tiny_checkpoint: Path, tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    arguments = ["export", "voxcpm2", str(tiny_checkpoint), "--out", str(out)]
    assert main([*arguments, "--format", text]) == UsageError.exit_code
    assert not out.exists()
    assert "format" in capsys.readouterr().err
