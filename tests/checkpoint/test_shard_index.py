"""Checkpoints in several files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from edge_runtime.errors import CheckpointError
from export.checkpoint.safetensors_file import SafetensorsFile
from export.checkpoint.shard_index import ShardIndex


@pytest.fixture
def index(tmp_path: Path) -> Path:
    save_file({"a": np.float32([1, 2]), "b": np.float32([3])}, tmp_path / "m-1.safetensors")
    save_file({"c": np.float32([4])}, tmp_path / "m-2.safetensors")
    return write(tmp_path, {"a": "m-1.safetensors", "c": "m-2.safetensors"})


def write(folder: Path, weight_map: Any) -> Path:
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {"total_size": 16}, "weight_map": weight_map}))
    return path


def open_index(path: Path) -> ShardIndex:
    return ShardIndex(path, SafetensorsFile)


def test_tensors_come_from_the_shards_that_the_index_names(index: Path) -> None:
    with open_index(index) as source:
        assert sorted(source) == ["a", "c"]
        assert len(source) == 2
        assert source["c"].file == index.with_name("m-2.safetensors")
        np.testing.assert_array_equal(source["a"].rows(1, 2), [2])


def test_close_closes_every_shard(index: Path) -> None:
    source = open_index(index)
    tensors = list(source.values())
    source.close()
    for tensor in tensors:
        with pytest.raises(ValueError, match="closed"):
            tensor.read()


def test_a_missing_shard_is_named(index: Path) -> None:
    index.with_name("m-2.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"m-2\.safetensors does not exist") as caught:
        open_index(index)
    assert "missing shard" in caught.value.remedy


def test_a_damaged_shard_is_named(index: Path) -> None:
    shard = index.with_name("m-2.safetensors")
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=r"m-2\.safetensors"):
        open_index(index)


def test_a_tensor_that_its_shard_does_not_hold_is_named(index: Path) -> None:
    write(index.parent, {"a": "m-2.safetensors"})
    with pytest.raises(CheckpointError, match=r"m-2\.safetensors does not hold tensor 'a'"):
        open_index(index)


@pytest.mark.parametrize(
    "name",
    [
        "../m-1.safetensors", "/etc/passwd", "sub/m-1.safetensors", "sub\\m-1.safetensors", "..",
        ".", "", "C:m-1.safetensors", "m-1..safetensors", "m-1.safetensors\0", "m-1.safetensors\n",
        ".hidden", 3, None, ["m-1.safetensors"], "\ud800",
    ],
)  # fmt: skip
def test_a_shard_name_that_could_leave_the_folder_is_refused(index: Path, name: Any) -> None:
    write(index.parent, {"a": name})
    with pytest.raises(CheckpointError, match="no plain file name"):
        open_index(index)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"weight_map": []}', '{"weight_map": {}}', "[" * 100_000, "\x80"],
)
def test_a_malformed_index_is_a_checkpoint_error(index: Path, text: str) -> None:
    index.write_bytes(text.encode("latin-1"))
    with pytest.raises(CheckpointError, match=r"index\.json"):
        open_index(index)
