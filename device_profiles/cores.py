"""Which CPU cores are the big ones."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

_CPUS = "sys/devices/system/cpu"
# Cores of one kind may differ a little in clock; a little core has less than this of a big one's.
_BIG_SHARE = 0.7


def usable_cores() -> tuple[int, ...]:
    """CPUs that this thread may run on (affinity and cpusets count)."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def big_cores(usable: Collection[int], root: Path = Path("/")) -> tuple[int, ...]:
    """The big ones of these CPUs; empty where all are alike, or the kernel does not tell.

    Args:
        usable: CPUs to choose from.
        root: Where ``sys`` is. Linux has a capacity per CPU, 1024 for the fastest, on boards with
            big and little cores.
    """
    capacities = {}
    for cpu in usable:
        file = root / _CPUS / f"cpu{cpu}/cpu_capacity"
        try:
            capacities[cpu] = int(file.read_text(encoding="ascii"))
        except (OSError, ValueError):
            return ()
    least = max(capacities.values(), default=0) * _BIG_SHARE
    big = tuple(sorted(cpu for cpu, capacity in capacities.items() if capacity >= least))
    return big if len(big) < len(capacities) else ()
