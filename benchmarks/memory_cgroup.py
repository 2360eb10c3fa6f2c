"""A real memory cgroup for one measurement, v1 or v2."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


class NoCgroupError(RuntimeError):
    """No memory cgroup can be made here; the text says why."""


@dataclass(frozen=True)
class MemoryCgroup:
    """A cgroup made for a measurement.

    Attributes:
        folder: Its folder.
        version: 1 or 2.
    """

    folder: Path
    version: int

    def join(self) -> None:
        """Move the calling process in (for ``preexec_fn``)."""
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def oom_kills(self) -> int:
        """Processes that the kernel killed here so far."""
        name = "memory.oom_control" if self.version == 1 else "memory.events"
        for line in (self.folder / name).read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == "oom_kill":
                return int(value)
        raise NoCgroupError(f"{self.folder / name} has no oom_kill counter")


@contextlib.contextmanager
def memory_cgroup(limit: int) -> Iterator[MemoryCgroup]:
    """Make a cgroup with a memory limit in bytes below this process's own; remove it afterwards.

    Raises:
        NoCgroupError: Not possible here.
    """
    parent, version = _parent()
    folder = parent / f"boardvoice-{os.getpid()}-{time.monotonic_ns()}"
    try:
        folder.mkdir()
        name = "memory.limit_in_bytes" if version == 1 else "memory.max"
        (folder / name).write_text(str(limit))
        if version == 2 and (folder / "memory.swap.max").exists():
            (folder / "memory.swap.max").write_text("0")
    except OSError as error:
        with contextlib.suppress(OSError):
            folder.rmdir()
        raise NoCgroupError(f"{folder}: {error}") from error
    group = MemoryCgroup(folder, version)
    try:
        group.oom_kills()
        yield group
    finally:
        for _ in range(50):
            try:
                folder.rmdir()
                break
            except OSError:
                time.sleep(0.1)


def _parent() -> tuple[Path, int]:
    v1 = Path("/sys/fs/cgroup/memory")
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(",") and v1.is_dir():
            below = v1 / path.lstrip("/")
            return (below if below.is_dir() else v1), 1
        if number == "0" and not controllers:
            # Only the root may hold processes beside children that have controllers.
            v2 = Path("/sys/fs/cgroup")
            enabled = v2 / "cgroup.subtree_control"
            if enabled.exists() and "memory" in enabled.read_text().split():
                return v2, 2
    raise NoCgroupError("no memory cgroup hierarchy that this process may extend")
