"""What `make_checkpoint` leaves on disk: files, bytes, and nothing half-made."""

from __future__ import annotations

import json
import shutil
import tracemalloc
import zlib
from collections import namedtuple
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file

from edge_runtime.errors import CheckpointError, OutputError, UsageError
from export.synthetic import RECIPES, make_checkpoint, values
from export.synthetic.encoder import TensorEncoder
from export.synthetic.tensors import TensorSpec, model_tensors, vae_tensors
from export.voxcpm2.config import load_config

TINY = RECIPES["tiny"]
NAMES = [name for name in RECIPES if name != "full"]


def _contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def _names_left(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()}


@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_is_a_small_whole_checkpoint(name: str, tmp_path: Path) -> None:
    recipe = RECIPES[name]
    folder = make_checkpoint(tmp_path / "made", recipe)
    assert _names_left(folder) == {
        "audiovae.safetensors",
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert sum(map(len, _contents(folder).values())) < 3_000_000
    config = load_config(folder)
    assert config == recipe.config()
    model, vae = load_file(folder / "model.safetensors"), load_file(folder / "audiovae.safetensors")
    assert {key: value.shape for key, value in model.items()} == {
        spec.name: spec.shape for spec in model_tensors(config)
    }
    assert {key: value.shape for key, value in vae.items()} == {
        spec.name: spec.shape for spec in vae_tensors(config.audio_vae_config)
    }
    assert {value.dtype for value in model.values()} == {np.dtype(ml_dtypes.bfloat16)}
    assert all(np.isfinite(value.astype(np.float32)).all() for value in (*model.values(),))


def test_full_recipe_has_the_published_size() -> None:
    config = RECIPES["full"].config()
    count = sum(spec.count for spec in model_tensors(config))
    count += sum(spec.count for spec in vae_tensors(config.audio_vae_config))
    assert 2.3e9 < count < 2.4e9


def test_recipes_differ_from_each_other() -> None:
    documents = [json.dumps(recipe.document(), sort_keys=True) for recipe in RECIPES.values()]
    assert len(set(documents)) == len(documents)


def test_documents_are_fresh_each_time() -> None:
    TINY.document()["lm_config"]["hidden_size"] = 1
    assert TINY.config().lm_config.hidden_size == 64


@pytest.mark.parametrize(
    ("model_format", "vae_format"),
    [("safetensors", "safetensors"), ("sharded", "safetensors"), ("bin", "pth")],
)
def test_same_seed_gives_same_bytes(model_format: str, vae_format: str, tmp_path: Path) -> None:
    kwargs = {"model_format": model_format, "vae_format": vae_format}
    first = make_checkpoint(tmp_path / "a", TINY, seed=3, **kwargs)
    second = make_checkpoint(tmp_path / "b", TINY, seed=3, **kwargs)
    other = make_checkpoint(tmp_path / "c", TINY, seed=4, **kwargs)
    assert _contents(first) == _contents(second)
    changed = {
        name for name, content in _contents(other).items() if content != _contents(first)[name]
    }
    unchanged = {"config.json", "tokenizer.json", "tokenizer_config.json"}
    assert not changed & unchanged
    assert all(name in changed for name in _names_left(first) - unchanged if "index" not in name)


def test_bytes_are_the_same_on_every_machine(tiny_folder: Path) -> None:
    # Recorded once; a change here changes every figure measured on a synthetic checkpoint.
    sums = {
        name: zlib.crc32((tiny_folder / name).read_bytes())
        for name in ("model.safetensors", "audiovae.safetensors", "tokenizer.json")
    }
    assert sums == {
        "model.safetensors": 1562311298,
        "audiovae.safetensors": 4287289214,
        "tokenizer.json": 499561103,
    }


def test_values_do_not_depend_on_the_block_size(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = TensorSpec("some.weight", (33, 31), "weight")
    whole = np.concatenate(list(values.value_blocks(spec, 0)))
    monkeypatch.setattr(values, "BLOCK", 64)
    pieces = list(values.value_blocks(spec, 0))
    assert len(pieces) > 10
    np.testing.assert_array_equal(np.concatenate(pieces), whole)


def test_weights_are_sized_by_their_fan_in() -> None:
    spec = TensorSpec("some.weight", (300, 400), "weight", gain=2.0)
    drawn = np.concatenate(list(values.value_blocks(spec, 0)))
    assert drawn.std() == pytest.approx(2.0 / 20, rel=0.02)
    assert abs(drawn.mean()) < 0.002
    norm = np.concatenate(list(values.value_blocks(TensorSpec("n", (5000,), "scale"), 0)))
    assert 0.8 <= norm.min() < norm.max() <= 1.2


@pytest.mark.parametrize(("dtype", "target"), [("bf16", ml_dtypes.bfloat16), ("f16", np.float16)])
def test_dtypes_are_roundings_of_the_same_values(
    dtype: str, target: type, tiny_folder: Path, tmp_path: Path
) -> None:
    folder = make_checkpoint(tmp_path / "made", TINY, dtype=dtype)
    exact = load_file(tiny_folder / "model.safetensors")
    rounded = load_file(folder / "model.safetensors")
    for name, value in exact.items():
        np.testing.assert_array_equal(value.astype(target), rounded[name], strict=True)
    assert (folder / "audiovae.safetensors").read_bytes() == (
        tiny_folder / "audiovae.safetensors"
    ).read_bytes()


def test_shards_hold_the_model_between_them(tiny_folder: Path, tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "made", TINY, dtype="f32", model_format="sharded")
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    files = sorted(set(index["weight_map"].values()))
    assert files == [f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3)]
    assert not (folder / "model.safetensors").exists()
    whole = load_file(tiny_folder / "model.safetensors")
    assert set(index["weight_map"]) == set(whole)
    assert index["metadata"]["total_size"] == sum(value.nbytes for value in whole.values())
    for file in files:
        for name, value in load_file(folder / file).items():
            assert index["weight_map"][name] == file
            np.testing.assert_array_equal(value, whole[name])


def test_boundaries_are_stored_as_int32(tiny_folder: Path) -> None:
    stored = load_file(tiny_folder / "audiovae.safetensors")["decoder.sr_bin_boundaries"]
    assert stored.dtype == np.int32
    assert stored.tolist() == [20000, 30000, 40000]


def test_large_tensors_are_written_in_blocks() -> None:
    spec = TensorSpec("large.weight", (4096, 8192), "weight")
    written: list[int] = []
    encoder = TensorEncoder(0, "bf16", written.append)
    tracemalloc.start()
    try:
        for _ in encoder.blocks(spec):
            pass
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sum(written) == encoder.size(spec) == 2 * 4096 * 8192
    assert peak < encoder.size(spec) / 2


def test_progress_ends_at_the_total(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    make_checkpoint(tmp_path / "made", TINY, progress=lambda *call: calls.append(call))
    assert calls[-1][0] == calls[-1][1] > 0
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)


def test_existing_folder_is_kept_unless_told_otherwise(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "made", TINY)
    before = _contents(folder)
    with pytest.raises(CheckpointError, match="--force"):
        make_checkpoint(folder, TINY, seed=1)
    assert _contents(folder) == before
    make_checkpoint(folder, TINY, seed=1, replace=True)
    assert _contents(folder) != before
    assert _names_left(tmp_path) == {"made"}


def test_replace_spares_what_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("keep me")
    (tmp_path / "file").write_text("keep me")
    for name in ("mine", "file"):
        with pytest.raises(CheckpointError, match="not a checkpoint"):
            make_checkpoint(tmp_path / name, TINY, replace=True)
    assert (tmp_path / "mine" / "letter.txt").read_text() == "keep me"


def test_interrupted_run_leaves_nothing(tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        if done > total / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_checkpoint(tmp_path / "made", TINY, progress=stop)
    assert not _names_left(tmp_path)


def test_interrupted_replacement_keeps_the_old_one(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "made", TINY)
    before = _contents(folder)

    def fail(done: int, total: int) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OutputError, match="No space left"):
        make_checkpoint(folder, TINY, seed=1, replace=True, progress=fail)
    assert _contents(folder) == before
    assert _names_left(tmp_path) == {"made"}


def test_full_disk_is_noticed_before_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**12, 10**12 - 10**9, 10**9))
    with pytest.raises(OutputError, match=r"1\.00 GB free"):
        make_checkpoint(tmp_path / "deep" / "made", RECIPES["full"])
    assert not _names_left(tmp_path)


def test_negative_seed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="negative"):
        make_checkpoint(tmp_path / "made", TINY, seed=-1)
