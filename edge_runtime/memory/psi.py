"""Pressure stall information: how much time tasks lose waiting for memory."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from edge_runtime.memory.cgroups import own_pressure_file


def memory_stall_percent(root: Path = Path("/")) -> float | None:
    """Share of the last 10 seconds in which some task waited for memory, 0 to 100.

    Of this process's cgroup (v2) where it is told, of the whole system otherwise; None where the
    kernel tells neither. Source: the kernel's Documentation/accounting/psi.rst.
    """
    for file in (own_pressure_file(root), root / "proc/pressure/memory"):
        # A kernel started with psi=0 has the files, and refuses to read them.
        with contextlib.suppress(OSError):
            text = file.read_text(encoding="utf-8", errors="replace") if file else ""
            if found := re.search(r"^some avg10=(\d+(?:\.\d+)?)\b", text, re.MULTILINE):
                return float(found[1])
    return None
