"""PyTorch's zip format, written without PyTorch."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from export.synthetic import RECIPES, make_checkpoint


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("torch_file") / "made"
    return make_checkpoint(
        target, RECIPES["tiny"], dtype="f32", model_format="bin", vae_format="pth"
    )


@pytest.mark.parametrize("name", ["pytorch_model.bin", "audiovae.pth"])
def test_members_are_stored_plain_and_aligned(name: str, folder: Path) -> None:
    with zipfile.ZipFile(folder / name) as archive:
        assert archive.testzip() is None
        members = archive.infolist()
    root = Path(name).stem
    names = {member.filename for member in members}
    assert {f"{root}/data.pkl", f"{root}/version", f"{root}/data/0"} <= names
    content = (folder / name).read_bytes()
    for member in members:
        assert member.compress_type == zipfile.ZIP_STORED
        header = content[member.header_offset : member.header_offset + 30]
        lengths = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
        assert (member.header_offset + 30 + lengths) % 64 == 0


def test_torch_loads_both_files(folder: Path, tiny_folder: Path) -> None:
    torch = pytest.importorskip("torch")
    for name, twin, wrap in (
        ("pytorch_model.bin", "model.safetensors", None),
        ("audiovae.pth", "audiovae.safetensors", "state_dict"),
    ):
        loaded = torch.load(folder / name, weights_only=True, mmap=True)
        if wrap:
            assert list(loaded) == [wrap]
            loaded = loaded[wrap]
        expected = load_file(tiny_folder / twin)
        assert set(loaded) == set(expected)
        for key, value in loaded.items():
            assert value.is_contiguous()
            np.testing.assert_array_equal(value.numpy(), expected[key], strict=True)


@pytest.mark.parametrize(("dtype", "name"), [("bf16", "bfloat16"), ("f16", "float16")])
def test_torch_sees_the_stored_dtype(dtype: str, name: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    made = make_checkpoint(tmp_path / "made", RECIPES["tiny"], dtype=dtype, model_format="bin")
    loaded = torch.load(made / "pytorch_model.bin", weights_only=True)
    assert {value.dtype for value in loaded.values()} == {getattr(torch, name)}
