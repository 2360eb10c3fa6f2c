"""A store per test."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge_runtime.voices.store import VoiceStore


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "state"
    monkeypatch.setenv("BOARDVOICE_STATE", str(folder))
    return folder


@pytest.fixture
def store(state: Path) -> VoiceStore:
    return VoiceStore()
