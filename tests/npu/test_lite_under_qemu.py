"""The real aarch64 wheel of rknn-toolkit-lite2, where somebody has set it up."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks/rknn_lite_qemu.py"
WORK = os.environ.get("BOARDVOICE_QEMU")


@pytest.mark.skipif(
    WORK is None or shutil.which("qemu-aarch64") is None,
    reason="needs qemu-user and 150 MB of arm64 packages: run benchmarks/rknn_lite_qemu.py once "
    "and name its --work folder in BOARDVOICE_QEMU",
)
def test_a_failed_run_of_the_real_package_is_computed_again_by_the_cpu() -> None:
    command = [sys.executable, str(SCRIPT), "--work", str(WORK), "--only", "run"]
    subprocess.run(command, check=True, timeout=600)
