"""Choosing the weight files of a folder, and demanding tensors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from torch_zip_writer import TorchFile

from edge_runtime.errors import CheckpointError
from export.checkpoint.folder import open_audio_vae, open_model, require
from export.checkpoint.tensor_source import PrefixedSource


def write_safetensors(path: Path, value: float) -> None:
    save_file({"x": np.float32([value])}, path)


def write_torch(path: Path, value: float) -> None:
    torch_file = TorchFile()
    torch_file.write(path, {"x": torch_file.add(np.float32([value]))})


def write_index(path: Path, shard: str) -> None:
    path.write_text(json.dumps({"weight_map": {"x": shard}}))


def test_the_model_is_chosen_in_the_order_of_the_official_loader(tmp_path: Path) -> None:
    write_torch(tmp_path / "pytorch_model-1.bin", 4)
    write_index(tmp_path / "pytorch_model.bin.index.json", "pytorch_model-1.bin")
    assert open_model(tmp_path)["x"].read() == 4
    write_torch(tmp_path / "pytorch_model.bin", 3)
    assert open_model(tmp_path)["x"].read() == 3
    write_safetensors(tmp_path / "model-1.safetensors", 2)
    write_index(tmp_path / "model.safetensors.index.json", "model-1.safetensors")
    assert open_model(tmp_path)["x"].read() == 2
    write_safetensors(tmp_path / "model.safetensors", 1)
    assert open_model(tmp_path)["x"].read() == 1


def test_the_audio_vae_prefers_safetensors(tmp_path: Path) -> None:
    write_torch(tmp_path / "audiovae.pth", 2)
    assert open_audio_vae(tmp_path)["x"].read() == 2
    write_safetensors(tmp_path / "audiovae.safetensors", 1)
    assert open_audio_vae(tmp_path)["x"].read() == 1


def test_a_folder_without_weights_lists_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError) as caught:
        open_model(tmp_path)
    for name in ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"):
        assert name in caught.value.message
    with pytest.raises(CheckpointError, match=r"audiovae\.safetensors, audiovae\.pth"):
        open_audio_vae(tmp_path)


@pytest.mark.parametrize("opener", [open_model, open_audio_vae])
def test_what_is_no_folder_is_refused(tmp_path: Path, opener: object) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "missing"):
        with pytest.raises(CheckpointError, match="not a folder"):
            opener(path)  # type: ignore[operator]


def test_a_dangling_link_is_named_instead_of_the_next_choice(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").symlink_to(tmp_path / "gone")
    write_torch(tmp_path / "pytorch_model.bin", 3)
    with pytest.raises(CheckpointError, match=r"model\.safetensors does not exist"):
        open_model(tmp_path)


def test_require_returns_a_tensor_of_the_right_shape(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "model.safetensors", 1)
    with open_model(tmp_path) as source:
        assert require(source, "x", (1,)).read() == 1


def test_require_names_file_tensor_and_both_shapes(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "model.safetensors", 1)
    with open_model(tmp_path) as source, pytest.raises(CheckpointError) as caught:
        require(source, "x", (2, 3))
    assert str(tmp_path / "model.safetensors") in caught.value.message
    assert "'x' has shape (1,)" in caught.value.message
    assert "(2, 3)" in caught.value.message
    assert caught.value.remedy


def test_require_names_file_and_full_name_of_a_missing_tensor(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "model.safetensors", 1)
    with open_model(tmp_path) as source, pytest.raises(CheckpointError) as caught:
        require(PrefixedSource(PrefixedSource(source, "lm."), "layers.0."), "w", (2,))
    assert str(tmp_path / "model.safetensors") in caught.value.message
    assert "'lm.layers.0.w' of shape (2,) is missing" in caught.value.message


def test_require_names_the_folder_when_there_are_several_files(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "1.safetensors", 1)
    save_file({"y": np.float32([1])}, tmp_path / "2.safetensors")
    weight_map = {"x": "1.safetensors", "y": "2.safetensors"}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    with open_model(tmp_path) as source, pytest.raises(CheckpointError, match=r"\(2 files\)"):
        require(source, "z", (1,))


def test_require_works_on_a_source_without_tensors() -> None:
    with pytest.raises(CheckpointError, match="'w' of shape"):
        require({}, "w", (2,))


def test_a_prefixed_source_shows_only_its_own_tensors(tmp_path: Path) -> None:
    save_file({"a.x": np.float32([1]), "b.x": np.float32([2])}, tmp_path / "model.safetensors")
    with open_model(tmp_path) as source:
        part = PrefixedSource(source, "a.")
        assert list(part) == ["x"]
        assert len(part) == 1
        assert part["x"].read() == 1
