"""Resolving a folder or hub id; the hub client is always a stand-in, no network is used."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from edge_runtime.errors import CheckpointError, DependencyError
from export.checkpoint.hub import resolve


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., Any]], None]:
    def put(download: Callable[..., Any]) -> None:
        module = ModuleType("huggingface_hub")
        module.snapshot_download = download  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "huggingface_hub", module)

    return put


def never(*_: object, **__: object) -> str:
    raise AssertionError("the hub was asked")


def test_an_existing_folder_is_returned_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, install: Callable[..., None]
) -> None:
    install(never)
    (tmp_path / "owner" / "name").mkdir(parents=True)
    assert resolve(str(tmp_path)) == tmp_path
    monkeypatch.chdir(tmp_path)
    assert resolve("owner/name") == Path("owner/name")


def test_a_hub_id_is_fetched_with_only_the_needed_files(
    tmp_path: Path, install: Callable[..., None]
) -> None:
    calls = []

    def download(repo_id: str, *, allow_patterns: list[str]) -> str:
        calls.append((repo_id, allow_patterns))
        return str(tmp_path)

    install(download)
    assert resolve("openbmb/VoxCPM2") == tmp_path
    [(repo_id, patterns)] = calls
    assert repo_id == "openbmb/VoxCPM2"
    assert {"config.json", "*.safetensors", "audiovae.*", "tokenizer*"} <= set(patterns)
    assert "*" not in patterns


def test_a_missing_client_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(DependencyError) as caught:
        resolve("owner/name")
    assert "pip install huggingface_hub" in caught.value.remedy


@pytest.mark.parametrize("error", [OSError("no route"), ValueError("bad id"), Exception("odd")])
def test_a_failed_download_tells_the_way_without_the_hub(
    install: Callable[..., None], error: Exception
) -> None:
    def download(*_: object, **__: object) -> str:
        raise error

    install(download)
    with pytest.raises(CheckpointError, match=str(error)) as caught:
        resolve("owner/name")
    assert "by hand" in caught.value.remedy


@pytest.mark.parametrize(
    "name",
    [
        "", "name", "a/b/c", "./missing/x", "/missing/folder", "../x", "owner/", "o wner/name",
        "a\0/b", "owner/na\nme", "https://hub/owner/name", "x" * 5000,
    ],
)  # fmt: skip
def test_what_is_neither_folder_nor_hub_id_is_refused(
    install: Callable[..., None], name: str
) -> None:
    install(never)
    with pytest.raises(CheckpointError, match="neither an existing folder nor a hub id"):
        resolve(name)


def test_a_file_is_refused(tmp_path: Path, install: Callable[..., None]) -> None:
    install(never)
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(CheckpointError, match="not a folder"):
        resolve(str(tmp_path / "model.safetensors"))
