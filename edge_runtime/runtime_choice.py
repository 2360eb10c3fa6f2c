"""How graphs are run on this device: threads and spinning, and who said so."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RuntimeChoice:
    """Settings that a loaded bundle runs with.

    Attributes:
        threads: Threads per session.
        spinning: Whether idle threads spin.
    """

    threads: int = 1
    spinning: bool = True
