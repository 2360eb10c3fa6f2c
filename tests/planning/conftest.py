"""The full-size bundle without its weights, unpacked once."""

from __future__ import annotations

from pathlib import Path

import pytest
from full_size_outline import full_size_outline

from edge_runtime.bundle import Bundle
from edge_runtime.plan.planner import Planner


@pytest.fixture(scope="session")
def outline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return full_size_outline(tmp_path_factory.mktemp("outline"))


@pytest.fixture(scope="session")
def planner(outline: Path) -> Planner:
    """Knows nothing that this machine measured."""
    return Planner(Bundle.open(outline, verify=False), Path("/nonexistent"))
