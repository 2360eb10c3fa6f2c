"""What is read from disk for this process: weights that were dropped and are needed again.

Mapped weights never make the kernel kill a process; they make it slow instead, and say nothing.
"""

from __future__ import annotations

from pathlib import Path

# A run that finds nothing in memory reads every file once.
_MOST_TIMES = 1.5


def disk_read_bytes(root: Path = Path("/")) -> int | None:
    """Bytes that this process had read from a disk so far; None where the kernel does not tell."""
    try:
        lines = (root / "proc/self/io").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("read_bytes:")), None)


def reread_warning(read_bytes: int, mapped_bytes: int) -> str:
    """Why a run was slow, if its weights were read again and again; else empty.

    Args:
        read_bytes: Read from disk during the run.
        mapped_bytes: Size of the mapped files.
    """
    if not mapped_bytes or read_bytes <= _MOST_TIMES * mapped_bytes:
        return ""
    return (
        f"The weights did not stay in memory: {read_bytes / 1e9:.1f} GB were read from disk, "
        f"{read_bytes / mapped_bytes:.1f} times their files. More memory makes this fast."
    )
