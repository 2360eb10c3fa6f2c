"""What is no readable regular file gives the same kind of error from every reader."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from edge_runtime.errors import CheckpointError
from export.checkpoint.safetensors_file import SafetensorsFile
from export.checkpoint.shard_index import ShardIndex
from export.checkpoint.torch_zip import TorchZip

READERS: list[Callable[[Path], object]] = [
    SafetensorsFile,
    TorchZip,
    lambda path: ShardIndex(path, SafetensorsFile),
]


@pytest.fixture(params=READERS, ids=["safetensors", "torch", "index"])
def reader(request: pytest.FixtureRequest) -> Callable[[Path], object]:
    return request.param


def check(reader: Callable[[Path], object], path: Path, what: str) -> None:
    with pytest.raises(CheckpointError, match=what) as caught:
        reader(path)
    assert str(path) in caught.value.message
    assert caught.value.remedy


def test_a_missing_file(reader: Callable[[Path], object], tmp_path: Path) -> None:
    check(reader, tmp_path / "missing", "does not exist")


def test_a_dangling_link(reader: Callable[[Path], object], tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    check(reader, tmp_path / "link", "does not exist")


def test_a_circle_of_links(reader: Callable[[Path], object], tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "link")
    check(reader, tmp_path / "link", "cannot be read")


def test_a_folder(reader: Callable[[Path], object], tmp_path: Path) -> None:
    check(reader, tmp_path, "is a folder")


def test_a_pipe_is_refused_without_waiting(
    reader: Callable[[Path], object], tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    check(reader, tmp_path / "pipe", "not a regular file")


def test_an_empty_file(reader: Callable[[Path], object], tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    check(reader, tmp_path / "empty", "empty")


def test_an_unreadable_file(
    reader: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_bytes(b"x")

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    # Not chmod: root, which containers run as, reads everything.
    monkeypatch.setattr(Path, "open", refuse)
    check(reader, tmp_path / "secret", "Permission denied")


def test_a_link_to_a_file_is_followed(tmp_path: Path) -> None:
    target = Path(__file__).parent / "fixtures" / "module.pth"
    (tmp_path / "link").symlink_to(target)
    with TorchZip(tmp_path / "link") as source:
        assert source["weight"].shape == (2,)
