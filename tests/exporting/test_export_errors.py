"""A checkpoint that does not fit its config, a tokenizer that does not, a target that is taken."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from edge_runtime.bundle import Bundle
from edge_runtime.errors import CheckpointError, OutputError, UnsupportedError
from edge_runtime.voice import Voice
from export.synthetic import RECIPES, make_checkpoint
from export.voxcpm2.exporter import export_voxcpm2

Tensors = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def f32_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("f32") / "tiny", RECIPES["tiny"], dtype="f32")


@pytest.fixture
def checkpoint(f32_checkpoint: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return shutil.copytree(f32_checkpoint, tmp_path / "checkpoint")


def change_tensors(file: Path, change: Callable[[Tensors], object]) -> None:
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file)


def refusal(checkpoint: Path) -> CheckpointError:
    out = checkpoint.parent / "out"
    with pytest.raises(CheckpointError) as caught:
        export_voxcpm2(checkpoint, out, weights="int8")
    assert os.listdir(checkpoint.parent) == [checkpoint.name], "nothing is left behind"
    return caught.value


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("model.safetensors", "base_lm.embed_tokens.weight"),
        ("model.safetensors", "base_lm.layers.2.self_attn.k_proj.weight"),
        ("model.safetensors", "residual_lm.norm.weight"),
        ("model.safetensors", "feat_encoder.special_token"),
        ("model.safetensors", "feat_decoder.estimator.time_mlp.linear_2.bias"),
        ("model.safetensors", "stop_head.weight"),
        ("audiovae.safetensors", "decoder.model.3.block.1.weight_g"),
        ("audiovae.safetensors", "encoder.fc_mu.bias"),
    ],
)
def test_a_missing_or_misshapen_tensor_is_named(checkpoint: Path, file: str, name: str) -> None:
    whole = (checkpoint / file).read_bytes()
    change_tensors(checkpoint / file, lambda tensors: tensors.pop(name))
    message = refusal(checkpoint).message
    assert file in message
    assert name in message
    assert "is missing" in message

    (checkpoint / file).write_bytes(whole)
    shape = load_file(checkpoint / file)[name].shape
    change_tensors(
        checkpoint / file, lambda t: t.update({name: np.zeros((*shape, 2), np.float32)})
    )
    message = refusal(checkpoint).message
    assert file in message
    assert name in message
    assert f"{(*shape, 2)}" in message
    assert f"{shape}" in message


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("model.safetensors", "base_lm.layers.1.mlp.up_proj.weight"),
        ("model.safetensors", "fusion_concat_proj.bias"),
        ("model.safetensors", "base_lm.embed_tokens.weight"),
        ("audiovae.safetensors", "decoder.model.1.weight_v"),
    ],
)
def test_a_value_that_is_not_finite_is_refused(
    checkpoint: Path, file: str, name: str, bad: float
) -> None:
    change_tensors(checkpoint / file, lambda tensors: np.put(tensors[name], 5, bad))
    message = refusal(checkpoint).message
    assert f"{file}: tensor {name!r} has a NaN or infinite value" in message


@pytest.mark.parametrize(
    ("weights", "name", "shown"),
    [
        ("f16", "base_lm.layers.1.mlp.up_proj.weight", "lm/base_lm/1/mlp/gate_up"),
        ("int8", "base_lm.embed_tokens.weight", "base_lm.embed_tokens.weight"),
    ],
)
def test_a_value_that_f16_cannot_hold_is_refused_where_f16_is_used(
    checkpoint: Path, weights, name: str, shown: str
) -> None:
    change_tensors(checkpoint / "model.safetensors", lambda t: np.put(t[name], 5, 7e4))
    with pytest.raises(UnsupportedError, match=f"{shown} has values beyond"):
        export_voxcpm2(checkpoint, checkpoint.parent / "out", weights=weights)
    export_voxcpm2(checkpoint, checkpoint.parent / "out", weights="f32")


def test_tensors_beyond_those_needed_are_ignored(checkpoint: Path) -> None:
    change_tensors(
        checkpoint / "model.safetensors", lambda t: t.update(other=np.ones(3, np.float32))
    )
    export_voxcpm2(checkpoint, checkpoint.parent / "out", weights="int8")


def test_a_torn_weight_file_is_named(checkpoint: Path) -> None:
    file = checkpoint / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    assert "model.safetensors" in refusal(checkpoint).message


def test_a_checkpoint_without_weights_says_what_was_looked_for(checkpoint: Path) -> None:
    (checkpoint / "audiovae.safetensors").unlink()
    assert "audiovae.pth" in refusal(checkpoint).message


@pytest.mark.parametrize("data", [None, b"", b"{", b"[]", b"{}", b'{"model": {"type": "X"}}'])
def test_a_missing_or_torn_tokenizer_is_the_checkpoints_fault(
    checkpoint: Path, data: bytes | None
) -> None:
    file = checkpoint / "tokenizer.json"
    file.unlink()
    if data is not None:
        file.write_bytes(data)
    error = refusal(checkpoint)
    assert str(file) in error.message
    assert "Download the checkpoint again" in error.remedy


def test_a_tokenizer_with_more_tokens_than_rows_is_refused(
    checkpoint: Path, tmp_path: Path
) -> None:
    config = json.loads((checkpoint / "config.json").read_text("utf-8"))
    config["lm_config"]["vocab_size"] = 300
    (checkpoint / "config.json").write_text(json.dumps(config), "utf-8")
    message = refusal(checkpoint).message
    assert "tokenizer.json has 640 tokens" in message
    assert "lm_config.vocab_size is 300" in message


def test_rows_must_reach_the_control_tokens(checkpoint: Path) -> None:
    config = json.loads((checkpoint / "config.json").read_text("utf-8"))
    config["lm_config"]["vocab_size"] = 104
    (checkpoint / "config.json").write_text(json.dumps(config), "utf-8")
    (checkpoint / "tokenizer.json").write_text(
        json.dumps({"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}}), "utf-8"
    )
    assert "104 is a control token" in refusal(checkpoint).message


def test_an_existing_bundle_is_kept_without_replace(checkpoint: Path) -> None:
    out = checkpoint.parent / "out"
    export_voxcpm2(checkpoint, out, weights="int8", name="first")
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with pytest.raises(OutputError, match="out exists"):
        export_voxcpm2(checkpoint, out, weights="int4", name="second")
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    export_voxcpm2(checkpoint, out, weights="int4", name="second", replace=True)
    assert Bundle.open(out).manifest.name == "second"
    assert sorted(os.listdir(checkpoint.parent)) == ["checkpoint", "out"]


def test_a_failed_export_keeps_the_bundle_it_was_to_replace(checkpoint: Path) -> None:
    out = checkpoint.parent / "out"
    export_voxcpm2(checkpoint, out, weights="int8", name="first")
    change_tensors(checkpoint / "audiovae.safetensors", lambda t: t.pop("encoder.fc_mu.bias"))
    with pytest.raises(CheckpointError):
        export_voxcpm2(checkpoint, out, weights="int8", replace=True)
    assert Bundle.open(out).manifest.name == "first"
    assert sorted(os.listdir(checkpoint.parent)) == ["checkpoint", "out"]


def test_replacing_never_wipes_what_is_no_bundle(checkpoint: Path) -> None:
    precious = checkpoint.parent / "precious"
    precious.mkdir()
    (precious / "thesis.txt").write_text("x")
    file = checkpoint.parent / "file"
    file.write_text("x")
    for target in (precious, file):
        with pytest.raises(OutputError, match="is not a bundle"):
            export_voxcpm2(checkpoint, target, weights="int8", replace=True)
    assert (precious / "thesis.txt").read_text() == file.read_text() == "x"


def test_an_empty_folder_may_be_replaced(checkpoint: Path) -> None:
    (checkpoint.parent / "out").mkdir()
    export_voxcpm2(checkpoint, checkpoint.parent / "out", weights="int8", replace=True)
    Bundle.open(checkpoint.parent / "out")


def test_the_current_folder_can_be_named_with_a_dot(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (checkpoint.parent / "out").mkdir()
    monkeypatch.chdir(checkpoint.parent / "out")
    with pytest.raises(OutputError, match=r"^\. exists"):
        export_voxcpm2(checkpoint, Path(), weights="int8")
    export_voxcpm2(checkpoint, Path(), weights="int8", replace=True)
    Bundle.open(checkpoint.parent / "out")


def test_a_target_below_a_file_cannot_be_written(checkpoint: Path) -> None:
    (checkpoint.parent / "file").write_text("x")
    with pytest.raises(OutputError, match="cannot be written"):
        export_voxcpm2(checkpoint, checkpoint.parent / "file" / "out", weights="int8")


def test_a_full_disk_is_an_output_error_and_leaves_nothing(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("export.weights.weight_file.WeightFile._write", full)
    with pytest.raises(OutputError, match="No space left"):
        export_voxcpm2(checkpoint, checkpoint.parent / "out", weights="int8")
    assert os.listdir(checkpoint.parent) == ["checkpoint"]


@pytest.mark.skipif(os.name != "posix", reason="needs names that are not UTF-8")
def test_a_folder_name_that_is_not_utf8_can_be_exported(checkpoint: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(checkpoint.parent) + b"/odd\xff"))
    checkpoint.rename(odd)
    manifest = export_voxcpm2(odd, odd.parent / "out", weights="int8")
    assert manifest.name == "odd?"
    assert Bundle.open(odd.parent / "out").manifest == manifest


def test_a_source_tree_that_is_not_installed_can_export(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from importlib.metadata import PackageNotFoundError

    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("export.voxcpm2.exporter.version", missing)
    manifest = export_voxcpm2(checkpoint, checkpoint.parent / "out", weights="int8")
    assert manifest.made_by == "boardvoice unknown"


def test_synthetic_weights_are_marked_and_others_are_not(checkpoint: Path) -> None:
    assert export_voxcpm2(checkpoint, checkpoint.parent / "a", weights="int8").synthetic
    config = json.loads((checkpoint / "config.json").read_text("utf-8"))
    del config["boardvoice_synthetic"]
    (checkpoint / "config.json").write_text(json.dumps(config), "utf-8")
    assert not export_voxcpm2(checkpoint, checkpoint.parent / "b", weights="int8").synthetic
    said = Voice.load(checkpoint.parent / "b", threads=1).say("hi", seed=1, max_len=1)
    assert not any("not speech" in warning for warning in said.metrics.warnings)
