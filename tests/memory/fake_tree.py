"""Fake ``/proc`` and ``/sys`` trees, sizes in MiB."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

MIB = 1 << 20
V1_UNLIMITED = 9223372036854771712


@dataclass
class FakeTree:
    """Files below `root`, written as the kernel would."""

    root: Path
    _mounts: list[str] = field(default_factory=list)

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")

    def member(self, *lines: str) -> None:
        """``/proc/self/cgroup``."""
        self.write("proc/self/cgroup", "".join(f"{line}\n" for line in lines))

    def mount(self, version: int, at: str, mounted_root: str = "/") -> None:
        kind = "cgroup2 cgroup2 rw" if version == 2 else "cgroup cgroup rw,memory"
        number = 30 + len(self._mounts)
        self._mounts.append(
            f"{number} 23 0:{number} {mounted_root} {at} rw,nosuid shared:9 - {kind}\n"
        )
        other = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/root rw\n"
        self.write("proc/self/mountinfo", other + "".join(self._mounts))

    def v2(self, folder: str, limit: int | str, used: int, **stat: int) -> None:
        text = limit if isinstance(limit, str) else str(limit * MIB)
        self.write(f"{folder}/memory.max", f"{text}\n")
        self.write(f"{folder}/memory.current", f"{used * MIB}\n")
        self._stat(folder, stat)

    def v1(self, folder: str, limit: int | None, used: int, **stat: int) -> None:
        number = V1_UNLIMITED if limit is None else limit * MIB
        self.write(f"{folder}/memory.limit_in_bytes", f"{number}\n")
        self.write(f"{folder}/memory.usage_in_bytes", f"{used * MIB}\n")
        self._stat(folder, stat)

    def meminfo(self, available: int, total: int = 4096) -> None:
        self.write(
            "proc/meminfo",
            f"MemTotal:  {total * 1024} kB\nMemFree: 7 kB\n"
            f"MemAvailable: {available * 1024} kB\nHugePages_Total:       0\n",
        )

    def status(self, anonymous: int, address_space: int = 0, data: int = 0) -> None:
        self.write(
            "proc/self/status",
            f"Name:\tpython\nVmSize:\t{address_space * 1024} kB\nVmData:\t{data * 1024} kB\n"
            f"RssAnon:\t{anonymous * 1024} kB\nRssFile:\t 5 kB\n",
        )

    def stall(self, percent: float, file: str = "proc/pressure/memory") -> None:
        self.write(
            file,
            f"some avg10={percent:.2f} avg60=0.00 avg300=0.00 total=1\n"
            "full avg10=99.00 avg60=0.00 avg300=0.00 total=0\n",
        )

    def _stat(self, folder: str, stat: dict[str, int]) -> None:
        lines = "".join(f"{name} {value * MIB}\n" for name, value in stat.items())
        self.write(f"{folder}/memory.stat", f"anon 1\n{lines}")
