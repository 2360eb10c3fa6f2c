"""The page of results is what its script makes of the committed files."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from samples import result, stat

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def page() -> ModuleType:
    spec = importlib.util.spec_from_file_location("page", ROOT / "benchmarks/page.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date(page: ModuleType) -> None:
    text = (ROOT / "docs/benchmarks.md").read_text("utf-8")
    assert text == page.page_text(ROOT / "docs"), "run benchmarks/page.py"


def test_every_result_is_on_the_page(page: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "benchmarks"
    folder.mkdir()
    result(123.0).save(folder / "one.json")
    side: dict[str, Any] = {
        "what": "them", "version": "1", "weights": "float32", "rss_anon_mb": 300,
        "patch_ms": stat(500.0).model_dump(), "cpu_s_per_patch": stat(2.0).model_dump(),
    }  # fmt: skip
    pair = {
        "kind": "side by side", "taken": "2026-12-01", "threads": 2, "rounds": 3, "patches": 5,
        "machine": {"cpu": "A CPU", "onnxruntime": "1.32.0"}, "rival": side,
        "ours": {**side, "patch_ms": stat(100.0).model_dump(), "rss_anon_mb": 100},
    }  # fmt: skip
    (folder / "two.json").write_text(json.dumps(pair), "utf-8")
    text = page.page_text(tmp_path)
    assert "| one patch, ms | 123 |" in text
    assert "| flow, ms per patch | 100 | 100 | 1 | 10 | 10 | 0.1 | compute | 50% |  |" in text
    assert "| one patch, wall ms | 100 | 500 | 5.0 |" in text
    assert "| anonymous memory, MB | 100 | 300 | 3.0 |" in text
    assert "first audio, ms | 30" in text
