"""What machine this is, as far as it matters for speed."""

from __future__ import annotations

import platform
from pathlib import Path

import onnxruntime
from pydantic import BaseModel, ConfigDict

from device_profiles.catalog import usable_cpus


class Machine(BaseModel):
    """Facts of the machine.

    Attributes:
        cpu: Model name of the CPU, or of the board where the CPU has none.
        arch: `uname -m`.
        cpus: CPUs that this process may use.
        memory_bytes: Memory of the system.
        kernel: Kernel release.
        onnxruntime: Its version.
        python: Its version.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    cpu: str
    arch: str
    cpus: int
    memory_bytes: int
    kernel: str
    onnxruntime: str
    python: str

    @staticmethod
    def read(root: Path = Path("/")) -> Machine:
        """Facts of the machine under ``root``; of Python and ONNX Runtime here."""
        return Machine(
            cpu=cpu_model(root),
            arch=platform.machine(),
            cpus=usable_cpus(),
            memory_bytes=_memory(root),
            kernel=platform.release(),
            onnxruntime=onnxruntime.__version__,
            python=platform.python_version(),
        )


def cpu_model(root: Path = Path("/")) -> str:
    """Name of the CPU: x86 has one in cpuinfo, ARM boards have one in the device tree."""
    for line in _text(root / "proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name" and value.strip():
            return value.strip()
    board = _text(root / "proc/device-tree/model").strip("\0\n ")
    return board or platform.machine()


def _memory(root: Path) -> int:
    for line in _text(root / "proc/meminfo").splitlines():
        name, _, value = line.partition(":")
        if name == "MemTotal" and value.split()[:1]:
            return int(value.split()[0]) * 1024
    return 0


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
