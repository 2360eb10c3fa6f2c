"""Pressure stall information: how much time tasks lose waiting for memory."""

from __future__ import annotations

from pathlib import Path


def memory_stall_percent(root: Path = Path("/")) -> float | None:
    """Share of the last 10 seconds in which some task waited for memory, 0 to 100.

    None where the kernel does not tell. Source: the kernel's Documentation/accounting/psi.rst.
    """
    try:
        lines = (root / "proc/pressure/memory").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    for line in lines:
        kind, *fields = line.split()
        values = dict(field.split("=", 1) for field in fields if "=" in field)
        if kind == "some" and "avg10" in values:
            return float(values["avg10"])
    return None
