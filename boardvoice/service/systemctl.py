"""systemctl, asked as a program."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edge_runtime.errors import DependencyError, ServiceError

# Made by a system's manager and a user's manager as they start; see sd_booted(3).
_BOOTED = Path("/run/systemd/system")
_LIMIT_S = 120


@dataclass(frozen=True)
class Systemctl:
    """One manager.

    Attributes:
        user: Whether it is the user's own.
    """

    user: bool = False

    @staticmethod
    def runs_here() -> bool:
        """Whether this system was started by systemd."""
        return _BOOTED.is_dir()

    def version(self) -> int | None:
        """Version of systemd; None where it does not tell."""
        found = re.match(r"systemd (\d+)", self.run("--version"))
        return int(found[1]) if found else None

    def run(self, *words: str) -> str:
        """What it prints.

        Raises:
            DependencyError: There is no such program.
            ServiceError: It failed, for the reason that it gives.
        """
        done = self._call(words)
        if done.returncode:
            raise ServiceError(
                f"systemctl {' '.join(words)}: {_reason(done)}.",
                remedy="See journalctl -xe" + (" --user." if self.user else "."),
            )
        return done.stdout

    def properties(self, unit: str, names: Sequence[str]) -> dict[str, str]:
        """Properties of a unit by name."""
        text = self.run("show", unit, f"--property={','.join(names)}")
        pairs = (line.partition("=") for line in text.splitlines())
        return {name: value for name, equals, value in pairs if equals}

    def _call(self, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        command = ["systemctl", *(["--user"] if self.user else []), *words]
        try:
            return subprocess.run(
                command, capture_output=True, text=True, errors="replace", check=False,
                stdin=subprocess.DEVNULL, timeout=_LIMIT_S,
            )  # fmt: skip
        except FileNotFoundError as error:
            raise DependencyError(
                "There is no systemctl here.",
                remedy="--dry-run prints the unit, for a system that has systemd.",
            ) from error
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ServiceError(f"systemctl cannot be asked: {error}.") from error


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    lines = (done.stderr or done.stdout).strip().splitlines()
    return lines[0].rstrip(".") if lines else f"exit code {done.returncode}"
