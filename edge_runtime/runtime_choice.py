"""How graphs are run on this device: threads and spinning, and who said so."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RuntimeChoice:
    """Settings that a loaded bundle runs with.

    Attributes:
        threads: Threads per session.
        spinning: Whether idle threads spin.
        overlap_vae: Whether a patch is decoded to audio while the next one is computed.
    """

    threads: int = 1
    spinning: bool = False
    overlap_vae: bool = False
