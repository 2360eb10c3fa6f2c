"""Starting the server, and where it cannot start."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def serve(*options: str, path: Path | None = None, **environment: str):
    folders = [str(ROOT)] if path is None else [str(path), str(ROOT)]
    return subprocess.run(
        [sys.executable, "-m", "boardvoice", "serve", *options],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders), **environment},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_a_missing_extra_is_told(tmp_path, f32_bundle):
    (tmp_path / "uvicorn.py").write_text("raise ImportError('No module named uvicorn')")
    done = serve(str(f32_bundle), "--port", "0", path=tmp_path)
    assert done.returncode == 8
    assert "boardvoice[serve]" in done.stderr


def test_beyond_loopback_a_token_is_needed(f32_bundle):
    done = serve(str(f32_bundle), "--host", "0.0.0.0")
    assert done.returncode == 2
    assert "BOARDVOICE_TOKEN" in done.stderr
    assert serve(str(f32_bundle), BOARDVOICE_TOKEN="short").returncode == 2


def test_a_bundle_that_cannot_be_loaded_ends_the_server(tmp_path):
    done = serve(str(tmp_path / "nothing"), "--port", "0")
    assert done.returncode == 5
    assert "Traceback" not in done.stderr


def test_a_taken_port_is_told(f32_bundle):
    with socket.create_server(("127.0.0.1", 0)) as other:
        done = serve(str(f32_bundle), "--port", str(other.getsockname()[1]))
    assert done.returncode == 11


@pytest.mark.parametrize("option", [("--queue", "-1"), ("--voice", "x"), ("--voice", "a=/nowhere")])
def test_a_wrong_option_is_told(f32_bundle, option):
    assert serve(str(f32_bundle), *option).returncode in (2, 4)
