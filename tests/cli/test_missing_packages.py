"""A package that cannot be imported is told in one sentence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("command", ["doctor", "say"])
def test_a_build_of_onnxruntime_that_misses_a_library_is_told(tmp_path: Path, command: str) -> None:
    (tmp_path / "onnxruntime.py").write_text(
        "raise ImportError('libcudnn.so.8: cannot open shared object file')"
    )
    done = subprocess.run(
        [sys.executable, "-m", "boardvoice", command, "--json"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 8
    assert "libcudnn.so.8" in done.stderr
    assert json.loads(done.stdout)["error"]["code"] == "dependency"
    assert "onnxruntime" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "error", ["MemoryError", "ImportError('lib.so: failed to map segment from shared object')"]
)
def test_libraries_that_find_no_memory_are_a_matter_of_memory(tmp_path: Path, error: str) -> None:
    (tmp_path / "onnxruntime.py").write_text(f"raise {error}")
    done = subprocess.run(
        [sys.executable, "-m", "boardvoice", "say", "Hi.", "--json"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 12
    assert json.loads(done.stdout)["error"]["code"] == "memory"
    assert "Traceback" not in done.stderr


def test_the_exit_code_is_the_same_where_nobody_can_read_it(tmp_path: Path) -> None:
    (tmp_path / "onnxruntime.py").write_text("raise ImportError('libcudnn.so.8')")
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-m", "boardvoice", "doctor", "--json"], stdout=full, check=False,
            env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    assert done.returncode == 8
    assert "Exception ignored" not in done.stderr
