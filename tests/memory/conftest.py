"""Fake trees for the memory tests."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
from fake_tree import FakeTree


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeTree:
    """An empty tree, and a process without resource limits."""
    unlimited = resource.RLIM_INFINITY
    monkeypatch.setattr(resource, "getrlimit", lambda _: (unlimited, unlimited))
    return FakeTree(tmp_path / "root")
