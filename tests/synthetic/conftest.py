"""Checkpoints that several tests look at, made once per run."""

from __future__ import annotations

from pathlib import Path

import pytest

from export.synthetic import RECIPES, make_checkpoint


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("synthetic") / "tiny"
    return make_checkpoint(folder, RECIPES["tiny"], dtype="f32")
