"""The CPUs: how many, of which kinds, and which of them may be used."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from device_profiles.cores import usable_cores
from device_profiles.probes.files import numbers, read_text

_CPUS = "sys/devices/system/cpu"


@dataclass(frozen=True)
class CpuFacts:
    """CPUs as the kernel describes them.

    Attributes:
        model: Marketing name; Arm has none here.
        present: CPUs that the kernel knows of, switched on or not; 0 if it does not say.
        cores: ``implementer:part`` of each one that is on (Arm).
        flags: x86's flags, Arm's features.
    """

    model: str = ""
    present: int = 0
    cores: tuple[str, ...] = ()
    flags: frozenset[str] = frozenset()

    @staticmethod
    def read(root: Path) -> CpuFacts:
        """Read ``/proc/cpuinfo`` and ``/sys/devices/system/cpu``."""
        model, implementer = "", ""
        cores: list[str] = []
        count = 0
        flags: set[str] = set()
        for line in read_text(root / "proc/cpuinfo").splitlines():
            key, _, value = (part.strip() for part in line.partition(":"))
            if key == "processor":
                count += 1
            elif key == "CPU implementer":
                implementer = value
            elif key == "CPU part":
                cores.append(f"{implementer}:{value}")
            elif key in ("flags", "Features"):
                flags.update(value.split())
            elif key == "model name" and not model:
                model = value
        present = len(numbers(read_text(root / _CPUS / "present"))) or count
        return CpuFacts(
            model=model,
            present=present,
            cores=tuple(cores),
            flags=frozenset(flags),
        )


def usable_cpus(root: Path = Path("/")) -> int:
    """CPUs' worth of time that this process may use: affinity, cpusets and cgroup quotas count."""
    allowed = len(usable_cores())
    quota = cpu_quota(root)
    return allowed if quota is None else max(1, min(allowed, math.ceil(quota)))


def allowed_cpus(root: Path) -> tuple[int, ...]:
    """CPUs that this process may run on, as ``/proc/self/status`` has them."""
    for line in read_text(root / "proc/self/status").splitlines():
        if line.startswith("Cpus_allowed_list:"):
            return tuple(numbers(line.partition(":")[2]))
    return ()


def cpu_quota(root: Path) -> float | None:
    """The smallest quota of CPUs over all cgroups of this process, v1 and v2; None for none."""
    quotas = []
    for line in read_text(root / "proc/self/cgroup").splitlines():
        number, controllers, path = (*line.split(":", 2), "", "")[:3]
        if number == "0" and not controllers:
            mounts = ["sys/fs/cgroup", "sys/fs/cgroup/unified"]
        elif "cpu" in controllers.split(","):
            mounts = ["sys/fs/cgroup/cpu", "sys/fs/cgroup/cpu,cpuacct"]
        else:
            continue
        parts = [part for part in path.split("/") if part and part != ".."]
        for mount in mounts:
            for depth in range(len(parts) + 1):
                quotas += _quota(root.joinpath(mount, *parts[:depth]))
    return min(quotas, default=None)


def _quota(folder: Path) -> list[float]:
    fields = read_text(folder / "cpu.max").split()
    if len(fields) != 2:
        fields = [read_text(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
    if all(field.isdecimal() and int(field) > 0 for field in fields):
        return [int(fields[0]) / int(fields[1])]
    return []
