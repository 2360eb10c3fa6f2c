"""All limits on this process's memory, and which of them is the tightest now."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from pathlib import Path

from edge_runtime.memory.cgroups import memory_cgroups, throttling_cgroups

_MIB = 1 << 20
# The user's own; beyond the others the kernel slows the process down.
SOFT_LIMIT = "soft limit"


@dataclass(frozen=True)
class ProcessMemory:
    """Memory of this process from ``/proc/self/status``, in bytes.

    Attributes:
        anonymous: Resident pages that have no file behind them, shared memory included.
        file: Resident pages of mapped files; the kernel can drop them.
        address_space: All mappings (what RLIMIT_AS counts).
        data: Private writable mappings (what RLIMIT_DATA counts).
    """

    anonymous: int
    file: int
    address_space: int
    data: int

    @staticmethod
    def read(root: Path = Path("/")) -> ProcessMemory:
        """Read the current figures; zeros where the system has no such file."""
        values = _kilobytes(root / "proc/self/status")
        return ProcessMemory(
            anonymous=values.get("RssAnon", 0) + values.get("RssShmem", 0),
            file=values.get("RssFile", 0),
            address_space=values.get("VmSize", 0),
            data=values.get("VmData", 0),
        )


@dataclass(frozen=True)
class Limit:
    """One limit.

    Attributes:
        name: Where it comes from, for people.
        limit: Bytes.
        available: Bytes left below it; negative when overdrawn.
        mappings_count: Whether mapped files count against it too (RLIMIT_AS).
        soft: Whether it may be passed: what is not needed is given back there, nothing refused.
    """

    name: str
    limit: int
    available: int
    mappings_count: bool = False
    soft: bool = False

    @property
    def used(self) -> int:
        """Bytes that count against it."""
        return self.limit - self.available


@dataclass(frozen=True)
class MemorySettings:
    """Limits that the user sets: profile, command line or environment.

    Attributes:
        hard_bytes: Most anonymous memory this process may ever hold; None for no such limit.
        soft_bytes: Above this, what is not needed is given back; None for no such limit.
        reserve_bytes: Left to the rest of the system, out of MemAvailable.
    """

    hard_bytes: int | None = None
    soft_bytes: int | None = None
    reserve_bytes: int = 64 * _MIB


def available_memory(root: Path = Path("/")) -> int:
    """MemAvailable in bytes; 0 where the system does not tell."""
    return _kilobytes(root / "proc/meminfo").get("MemAvailable", 0)


def current_limits(
    settings: MemorySettings, root: Path = Path("/"), *, device_bytes: int = 0
) -> list[Limit]:
    """Every limit in force, tightest first.

    Args:
        settings: The user's.
        root: Where ``proc`` and ``sys`` are.
        device_bytes: What this process holds besides in memory that a GPU or NPU shares with the
            system; its own figures do not show it.
    """
    return sorted(
        (
            *_hard_limits(settings, root, device_bytes),
            *_soft_limits(settings, root, device_bytes),
        ),
        key=lambda limit: limit.available,
    )


def _soft_limits(settings: MemorySettings, root: Path, device_bytes: int) -> list[Limit]:
    # Above memory.high the kernel kills nobody, but every allocation waits.
    limits = [
        Limit(f"memory.high of cgroup {entry.path}", entry.limit, entry.available, soft=True)
        for entry in throttling_cgroups(root)
    ]
    if settings.soft_bytes is not None:
        spare = settings.soft_bytes - ProcessMemory.read(root).anonymous - device_bytes
        limits.append(Limit(SOFT_LIMIT, settings.soft_bytes, spare, soft=True))
    return limits


def _hard_limits(settings: MemorySettings, root: Path, device_bytes: int) -> list[Limit]:
    own = ProcessMemory.read(root)
    limits = [
        Limit(f"cgroup {entry.path}", entry.limit, entry.available)
        for entry in memory_cgroups(root)
    ]
    meminfo = _kilobytes(root / "proc/meminfo")
    if "MemAvailable" in meminfo and "MemTotal" in meminfo:
        # File pages of our own weights are in MemAvailable already: the kernel can drop them.
        limits.append(
            Limit(
                "MemAvailable less the reserve",
                max(meminfo["MemTotal"] - settings.reserve_bytes, 0),
                meminfo["MemAvailable"] - settings.reserve_bytes,
            )
        )
    for name, number, used, mappings in (
        ("RLIMIT_AS", resource.RLIMIT_AS, own.address_space, True),
        ("RLIMIT_DATA", resource.RLIMIT_DATA, own.data, False),
    ):
        soft, _ = resource.getrlimit(number)
        if soft != resource.RLIM_INFINITY:
            limits.append(Limit(name, soft, soft - used, mappings))
    if settings.hard_bytes is not None:
        spare = settings.hard_bytes - own.anonymous - device_bytes
        limits.append(Limit("hard limit", settings.hard_bytes, spare))
    return limits


def _kilobytes(file: Path) -> dict[str, int]:
    """Bytes by name from lines such as ``MemFree:  12 kB``; what is no such line is left out."""
    try:
        # A process may have any name, and `status` shows it as it is.
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    found = {}
    for line in lines:
        name, _, rest = line.partition(":")
        value = rest.split()
        if len(value) == 2 and value[1] == "kB" and value[0].isdecimal():
            found[name] = int(value[0]) * 1024
    return found
