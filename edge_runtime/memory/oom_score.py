"""Who the kernel kills first when memory is short: changed only where a profile says so."""

from __future__ import annotations

from pathlib import Path

LOWEST, HIGHEST = -1000, 1000


def set_oom_score(adjustment: int, root: Path = Path("/")) -> str:
    """Set this process's ``oom_score_adj``.

    Source: proc_pid_oom_score_adj(5).

    Args:
        adjustment: -1000 (never killed) to 1000 (killed first).
        root: Where ``proc`` is.

    Returns:
        Why it could not be set; empty when it was.
    """
    file = root / "proc/self/oom_score_adj"
    try:
        file.write_text(f"{adjustment}\n", encoding="ascii")
    except OSError as error:
        return (
            f"memory.oom_score_adj: {adjustment} cannot be set: {error.strerror or error}. "
            "To go below what the process started with takes CAP_SYS_RESOURCE."
        )
    return ""
