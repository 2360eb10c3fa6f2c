"""Memory, kernel, and whether this is a container."""

from __future__ import annotations

from pathlib import Path

from device_profiles.probes.files import read_text, shown

_MARKS = {
    ".dockerenv": "docker",
    "run/.containerenv": "podman",
    "var/run/secrets/kubernetes.io": "kubernetes",
}
_NAMES = ("kubepods", "docker", "libpod", "containerd", "lxc", "machine.slice/machine-")


def memory_mib(root: Path) -> int:
    """MiB of memory that the kernel has; 0 if it does not say."""
    for line in read_text(root / "proc/meminfo").splitlines():
        fields = line.split()
        if len(fields) == 3 and fields[0] == "MemTotal:" and fields[1].isdecimal():
            return int(fields[1]) // 1024
    return 0


def container(root: Path) -> tuple[str, str]:
    """The kind of container that this process is in and what gave it away; empty for none."""
    for mark, kind in _MARKS.items():
        if (root / mark).exists():
            return kind, shown(root / mark, root)
    for name in ("proc/self/cgroup", "proc/1/cgroup"):
        text = read_text(root / name)
        for kind in _NAMES:
            if kind in text:
                return kind.partition(".")[0], shown(root / name, root)
    return "", ""


def kernel(root: Path) -> str:
    """Release of the running kernel."""
    return read_text(root / "proc/sys/kernel/osrelease")
