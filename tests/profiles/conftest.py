"""Profiles of whoever runs the tests stay out of them."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def profiles_of_this_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("BOARDVOICE_PROFILE", raising=False)
    return tmp_path / "config" / "boardvoice" / "profiles"
