"""Other builds of ONNX Runtime, where somebody has put them: a real fallback, a real provider."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import try_provider

ROOT = Path(__file__).parents[2]
GPU, OPENVINO = "BOARDVOICE_ORTGPU_PYTHON", "BOARDVOICE_OPENVINO_PYTHON"


def run(variable: str, what: str, bundle: Path, folder: Path) -> Any:
    python = os.environ.get(variable)
    if not python:
        pytest.skip(f"{variable} names no Python with that build; see docs/providers.md")
    out = folder / "result.json"
    done = subprocess.run(
        [python, try_provider.__file__, what, bundle, out],
        env={**os.environ, "PYTHONPATH": str(ROOT), "BOARDVOICE_STATE": str(folder)},
        capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "", "ONNX Runtime's own fallback prints to stdout"
    return json.loads(out.read_text())


def test_the_gpu_build_without_cuda_is_found_out(f32_bundle: Path, tmp_path: Path) -> None:
    found = run(GPU, "gpu", f32_bundle, tmp_path)
    assert "without it and without an error" in found["checks"]["cuda"]
    assert "is not found" in found["checks"]["cuda"]
    assert found["checks"]["tensorrt"]
    assert not found["checks"]["cpu"]
    assert set(found["places"].values()) == {"cpu"}
    for name in ("cuda", "tensorrt"):
        assert len([note for note in found["warnings"] if f"asks for {name}" in note]) == 1


def test_another_provider_gets_what_it_can_compute(f32_bundle: Path, tmp_path: Path) -> None:
    found = run(OPENVINO, "openvino", f32_bundle, tmp_path)
    assert found["layers"] == ""
    assert "GroupQueryAttention of it to the CPU" in found["attention"]
    assert found["places"].pop("lm") == "cpu"
    assert set(found["places"].values()) == {"cuda"}
    assert found["snr"] > 60
