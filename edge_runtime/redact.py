"""Takes out of a report what tells whose board it is: names, serial numbers, addresses."""

from __future__ import annotations

import getpass
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from device_profiles.probes.files import read_text

# Shorter ones are in too many other words.
_SHORTEST = 3
# Names that are nobody's.
_COMMON = frozenset({"root", "user", "localhost", "boardvoice", "linux", "python", "home"})
_SERIALS = (
    "proc/device-tree/serial-number", "sys/firmware/devicetree/base/serial-number",
    "etc/machine-id", "sys/class/dmi/id/product_serial", "sys/class/dmi/id/board_serial",
    "sys/class/dmi/id/product_uuid",
)  # fmt: skip
_ADDRESS = re.compile(r"\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b", re.IGNORECASE)


@dataclass(frozen=True)
class Redactor:
    """Replaces known texts wherever they stand.

    Attributes:
        words: What is replaced, with what; longer ones first.
    """

    words: tuple[tuple[str, str], ...]

    @staticmethod
    def here(folders: Mapping[str, Path], root: Path = Path("/")) -> Redactor:
        """For this machine and user.

        Args:
            folders: Folders that are called by their key instead of their path.
            root: Where ``proc``, ``sys`` and ``etc`` are.
        """
        found: dict[str, str] = {}
        for name, folder in folders.items():
            for path in {str(folder), str(folder.absolute()), str(folder.resolve())}:
                if len(path) >= _SHORTEST:
                    found.setdefault(path, name)
        home = str(Path.home())
        if len(home) >= _SHORTEST:
            found.setdefault(home, "HOME")
        for name in _hosts(root):
            found.setdefault(name, "HOST")
        for name in _users():
            found.setdefault(name, "USER")
        for serial in _serials(root):
            found.setdefault(serial, "SERIAL")
        return Redactor(tuple(sorted(found.items(), key=lambda pair: -len(pair[0]))))

    def text(self, text: str) -> str:
        """One text."""
        for word, instead in self.words:
            # Whole words only: a host called "rock" does not change "rockchip".
            text = re.sub(rf"(?<![\w]){re.escape(word)}(?![\w])", instead, text)
        return _ADDRESS.sub("ADDRESS", text)

    def value(self, value: Any) -> Any:
        """All texts of a JSON value, keys too."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self.value(each) for key, each in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.value(each) for each in value]
        return value


def _hosts(root: Path) -> set[str]:
    names = {socket.gethostname(), read_text(root / "etc/hostname").strip()}
    names |= {name.partition(".")[0] for name in names}
    return {name for name in names if _personal(name)}


def _users() -> set[str]:
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        # A number without a name, as in some containers.
        name = ""
    return {each for each in (name, Path.home().name) if _personal(each)}


def _personal(name: str) -> bool:
    return len(name) >= _SHORTEST and name.lower() not in _COMMON


def _serials(root: Path) -> set[str]:
    found = {read_text(root / place).strip("\0\n ") for place in _SERIALS}
    for line in read_text(root / "proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        if name.strip().lower() == "serial":
            found.add(value.strip())
    return {serial for serial in found if len(serial) >= _SHORTEST and serial.strip("0 ")}
