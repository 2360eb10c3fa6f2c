"""Facts of the board below a root, each with where it was read."""

from __future__ import annotations

import platform
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from device_profiles.cores import big_cores
from device_profiles.probes.cpu import CpuFacts, allowed_cpus, cpu_quota
from device_profiles.probes.device_tree import DeviceTree, chip_elsewhere, jetson_linux
from device_profiles.probes.npu import NpuFacts
from device_profiles.probes.system import container, kernel, memory_mib

# RK3582 is an RK3588 with faulty parts switched off; vendors' trees do not tell them apart.
_FULL_RK3588 = 8
_X86_CLASSES = ("amx_int8", "avx512_vnni", "avx_vnni", "avx512f", "avx2", "fma")


@dataclass(frozen=True)
class Fact:
    """One fact.

    Attributes:
        name: What it is.
        value: As text; empty where nothing was found.
        source: Where it was read.
    """

    name: str
    value: str
    source: str


@dataclass(frozen=True)
class BoardFacts:
    """What is known of a board.

    Attributes:
        machine: `uname -m`.
        tree: The device tree's names.
        soc: Chip, or empty.
        soc_source: What said so.
        l4t: Version of Jetson Linux, or empty.
        l4t_source: Where it was read.
        cpu: The CPUs.
        big: CPUs of the strong kind; empty where all are alike.
        npu: Rockchip's NPU.
        memory_mib: Memory in MiB; 0 if unknown.
        container: Kind of container, or empty.
        container_source: What gave it away.
        kernel: The kernel's release.
        allowed: CPUs that this process may run on.
        quota: CPUs' worth of time that cgroups allow; None for no limit.
    """

    machine: str
    tree: DeviceTree = field(default_factory=DeviceTree)
    soc: str = ""
    soc_source: str = ""
    l4t: str = ""
    l4t_source: str = ""
    cpu: CpuFacts = field(default_factory=CpuFacts)
    big: tuple[int, ...] = ()
    npu: NpuFacts = field(default_factory=NpuFacts)
    memory_mib: int = 0
    container: str = ""
    container_source: str = ""
    kernel: str = ""
    allowed: tuple[int, ...] = ()
    quota: float | None = None

    def facts(self) -> tuple[Fact, ...]:
        """Everything that was looked for."""
        tree, cpu = self.tree, self.cpu
        place = tree.source or "/proc/device-tree, /sys/firmware/devicetree/base"
        kinds = ", ".join(f"{count} of {kind}" for kind, count in Counter(cpu.cores).items())
        flags = " ".join(flag for flag in _X86_CLASSES if flag in cpu.flags)
        if kinds:
            flags = " ".join(flag for flag in ("asimddp", "i8mm", "sve2") if flag in cpu.flags)
        driver = f"{self.npu.driver} {self.npu.version}".strip()
        return (
            Fact("machine", self.machine, "uname -m"),
            Fact("kernel", self.kernel, "/proc/sys/kernel/osrelease"),
            Fact("board", tree.model, f"{place} (model)"),
            Fact("compatible", ", ".join(tree.compatible), f"{place} (compatible)"),
            Fact("module part number", tree.part_number, tree.part_source or f"{place} (chosen)"),
            Fact("modules", ", ".join(tree.modules()), "part number and compatible"),
            Fact("chip", self.soc, self.soc_source or "compatible, /sys/module/tegra_fuse, NPU"),
            Fact(
                "Jetson Linux", self.l4t,
                self.l4t_source or "/etc/nv_tegra_release, /var/lib/dpkg/status",
            ),
            Fact("CPU", cpu.model or kinds, "/proc/cpuinfo"),
            Fact("CPU flags", flags, "/proc/cpuinfo"),
            Fact("CPUs", str(cpu.present or ""), "/sys/devices/system/cpu/present"),
            Fact(
                "big CPUs", ", ".join(map(str, self.big)),
                "/sys/devices/system/cpu/cpu*/cpu_capacity",
            ),
            Fact("allowed CPUs", ", ".join(map(str, self.allowed)), "/proc/self/status"),
            Fact(
                "CPU quota", "" if self.quota is None else f"{self.quota:g}",
                "/sys/fs/cgroup (cpu.max, cpu.cfs_quota_us)",
            ),
            Fact("memory", f"{self.memory_mib} MiB" if self.memory_mib else "", "/proc/meminfo"),
            Fact(
                "NPU driver", driver,
                self.npu.source or "/sys/kernel/debug/rknpu, /proc/rknpu, /sys/module, /dev",
            ),
            Fact("librknnrt", self.npu.library, "/usr/lib"),
            Fact(
                "container", self.container,
                self.container_source or "/.dockerenv, /run/.containerenv, /proc/self/cgroup",
            ),
        )  # fmt: skip


def detect(root: Path = Path("/"), *, machine: str | None = None) -> BoardFacts:
    """Read the facts.

    Args:
        root: Where ``/proc``, ``/sys``, ``/etc`` and ``/dev`` are read.
        machine: `uname -m`; the running machine's by default.
    """
    tree, cpu = DeviceTree.read(root), CpuFacts.read(root)
    soc, soc_source = _chip(root, tree, cpu)
    l4t, l4t_source = jetson_linux(root) if soc.startswith("tegra") or not soc else ("", "")
    kind, kind_source = container(root)
    return BoardFacts(
        machine=platform.machine() if machine is None else machine,
        tree=tree,
        soc=soc,
        soc_source=soc_source,
        l4t=l4t,
        l4t_source=l4t_source,
        cpu=cpu,
        big=big_cores(range(cpu.present), root),
        npu=NpuFacts.read(root),
        memory_mib=memory_mib(root),
        container=kind,
        container_source=kind_source,
        kernel=kernel(root),
        allowed=allowed_cpus(root),
        quota=cpu_quota(root),
    )


def _chip(root: Path, tree: DeviceTree, cpu: CpuFacts) -> tuple[str, str]:
    soc, entry = tree.soc()
    source = f"{entry} in {tree.source}/compatible" if soc else ""
    if not soc:
        soc, source = chip_elsewhere(root)
    if soc == "rk3588" and 0 < cpu.present < _FULL_RK3588:
        return "rk3582", f"{source}, but {cpu.present} CPUs instead of {_FULL_RK3588}"
    return soc, source
