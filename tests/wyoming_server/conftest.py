"""A server that tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from wyoming_asked import Asked, asked

pytest.importorskip("uvicorn")
pytest.importorskip("starlette")
pytest.importorskip("wyoming")


@pytest.fixture(scope="session")
def house(f32_bundle: Path) -> Iterator[Asked]:
    options = (
        "--queue",
        "1",
        "--receive-timeout",
        "1",
        "--wyoming-idle",
        "2",
        "--max-chars",
        "500",
    )
    with asked(f32_bundle, *options) as one:
        yield one
