"""What the kernel lets the service hold, from the profile's limits."""

from __future__ import annotations

from dataclasses import dataclass

from device_profiles.schema import MemorySection

_MIB = 1 << 20
# Prepared files take about twice the weights (docs/memory.md), and all of them may be mapped.
_MAPPED_SHARE = 2
# Here the guard begins to give back; it refuses 24 MiB below the end.
_BELOW = 64 * _MIB
_LEAST = 128 * _MIB


@dataclass(frozen=True)
class MemoryBounds:
    """Limits of the service's cgroup, which counts mapped files, too.

    Attributes:
        high: Above this the kernel takes file pages back and slows the service down, in bytes.
        most: Above this it kills, in bytes.
    """

    high: int
    most: int


def memory_bounds(
    section: MemorySection, *, weights: int, total: int, hard: int | None, soft: int | None
) -> MemoryBounds | None:
    """The bounds.

    A profile's limits are of anonymous memory, so room for the mapped weights comes on top. No
    bound is above what the machine has less the profile's reserve.

    Args:
        section: The profile's limits.
        weights: Size of the bundle's weights in bytes.
        total: The machine's memory in bytes; 0 if unknown.
        hard: The user's hard limit in bytes, before the profile's.
        soft: The user's soft limit in bytes, before the profile's.

    Returns:
        The bounds; None where neither the machine nor the profile has a limit.
    """
    hard = hard or (section.hard_mib or 0) * _MIB or None
    soft = soft or (section.soft_mib or 0) * _MIB or None
    machine = max(total - section.reserve_mib * _MIB, _LEAST) if total else None
    mapped = _MAPPED_SHARE * weights
    wanted = [hard + mapped if hard else None, machine]
    most = min((bound for bound in wanted if bound is not None), default=None)
    if most is None:
        return None
    high = most - _BELOW
    return MemoryBounds(min(high, soft + mapped) if soft else high, most)
