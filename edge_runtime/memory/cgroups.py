"""Memory cgroups of this process: every ancestor's limit and what is charged to it, v1 and v2."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

# v1 says "unlimited" with the largest page-aligned number.
_UNLIMITED = 1 << 62


@dataclass(frozen=True)
class CgroupMemory:
    """One cgroup with a memory limit.

    Attributes:
        path: Its folder.
        limit: Bytes at which the kernel kills (``memory.max`` or ``memory.limit_in_bytes``), or
            above which it slows the group down (``memory.high``).
        used: Bytes charged that the kernel cannot simply drop: all but the file pages.
    """

    path: Path
    limit: int
    used: int

    @property
    def available(self) -> int:
        """Bytes left; negative when overdrawn."""
        return self.limit - self.used


def memory_cgroups(root: Path = Path("/")) -> list[CgroupMemory]:
    """Every cgroup with a limit that this process is charged to, innermost first.

    Source: the kernel's Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst.
    """
    return _entries(root, lambda folder: _read_v2(folder, "memory.max"), _read_v1)


def throttling_cgroups(root: Path = Path("/")) -> list[CgroupMemory]:
    """Every cgroup whose tasks the kernel slows down above a limit, innermost first.

    v1 has no such thing: its soft limit only says where to look first when all memory is short.
    """
    return _entries(root, lambda folder: _read_v2(folder, "memory.high"), lambda _: None)


def own_pressure_file(root: Path = Path("/")) -> Path | None:
    """``memory.pressure`` of this process's own cgroup, or None."""
    for version, mount, relative in _memberships(root):
        if version == 2:
            for folder in _ancestors(mount, relative)[:1]:
                file = folder / "memory.pressure"
                return file if file.is_file() else None
    return None


def _entries(
    root: Path,
    read_v2: Callable[[Path], CgroupMemory | None],
    read_v1: Callable[[Path], CgroupMemory | None],
) -> list[CgroupMemory]:
    found = []
    for version, mount, relative in _memberships(root):
        read = read_v2 if version == 2 else read_v1
        found += [read(folder) for folder in _ancestors(mount, relative)]
    return [entry for entry in found if entry is not None]


def _memberships(root: Path) -> list[tuple[int, Path, str]]:
    """(version, mount point, path below it) of each hierarchy that may account for memory."""
    mounts = _mounts(root)
    memberships = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, controllers, path = (*line.split(":", 2), "", "")[:3]
        if number == "0" and not controllers:
            kind, version = "cgroup2", 2
        elif "memory" in controllers.split(","):
            kind, version = "memory", 1
        else:
            continue
        for mount, mounted_root in mounts.get(kind, []):
            memberships.append((version, root / mount.lstrip("/"), _below(path, mounted_root)))
    return memberships


def _mounts(root: Path) -> dict[str, list[tuple[str, str]]]:
    """Mount points by kind, each with the part of the hierarchy that is mounted there."""
    found: dict[str, list[tuple[str, str]]] = {}
    for line in _text(root / "proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or len(kind) < 3:
            continue
        if kind[0] == "cgroup2":
            found.setdefault("cgroup2", []).append((_unescaped(fields[4]), _unescaped(fields[3])))
        elif kind[0] == "cgroup" and "memory" in kind[2].split(","):
            found.setdefault("memory", []).append((_unescaped(fields[4]), _unescaped(fields[3])))
    return found


def _unescaped(field: str) -> str:
    # mountinfo writes spaces and backslashes as octal numbers.
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), field)


def _below(path: str, mounted_root: str) -> str:
    # In a container the mount often begins at the container's own cgroup.
    if mounted_root != "/" and (path == mounted_root or path.startswith(mounted_root + "/")):
        return path[len(mounted_root) :]
    return path


def _ancestors(mount: Path, relative: str) -> list[Path]:
    parts = [part for part in relative.split("/") if part and part != ".."]
    folders = [mount.joinpath(*parts[:count]) for count in range(len(parts), -1, -1)]
    # A path from outside the container's namespace is not visible: its mount point is the cgroup.
    return [folder for folder in folders if os.path.isdir(folder)]


def _read_v2(folder: Path, name: str) -> CgroupMemory | None:
    limit, current = _number(folder / name), _number(folder / "memory.current")
    if limit is None or current is None:
        return None
    stat = _stat(folder)
    # Shared memory is counted among the file pages but has nowhere to go.
    droppable = stat.get("file", 0) - stat.get("shmem", 0) + stat.get("slab_reclaimable", 0)
    return CgroupMemory(folder, limit, current - droppable)


def _read_v1(folder: Path) -> CgroupMemory | None:
    limit = _number(folder / "memory.limit_in_bytes")
    current = _number(folder / "memory.usage_in_bytes")
    if limit is None or current is None or limit >= _UNLIMITED:
        return None
    stat = _stat(folder)
    droppable = stat.get("total_cache", 0) - stat.get("total_shmem", 0)
    return CgroupMemory(folder, limit, current - droppable)


def _stat(folder: Path) -> dict[str, int]:
    pairs = (line.split() for line in _text(folder / "memory.stat").splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def _number(file: Path) -> int | None:
    text = _text(file).strip()
    return int(text) if text.isdecimal() else None


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
