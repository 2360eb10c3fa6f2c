"""Servers that tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from served import Served, served

pytest.importorskip("uvicorn")
pytest.importorskip("starlette")


@pytest.fixture(scope="session")
def server(f32_bundle: Path) -> Iterator[Served]:
    with served(f32_bundle, "--queue", "1", "--receive-timeout", "1") as one:
        yield one
