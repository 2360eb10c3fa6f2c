"""Pressure stall information: how much time tasks lose waiting for memory."""

from __future__ import annotations

import re
from pathlib import Path


def memory_stall_percent(root: Path = Path("/")) -> float | None:
    """Share of the last 10 seconds in which some task waited for memory, 0 to 100.

    None where the kernel does not tell. Source: the kernel's Documentation/accounting/psi.rst.
    """
    try:
        text = (root / "proc/pressure/memory").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    found = re.search(r"^some avg10=(\d+(?:\.\d+)?)\b", text, re.MULTILINE)
    return float(found[1]) if found else None
