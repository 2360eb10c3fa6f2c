"""A unit put in its place, removed from it, and asked how it is."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from boardvoice.service.systemctl import Systemctl
from boardvoice.service.unit import is_own
from edge_runtime.atomic import atomic_file, fsync_path
from edge_runtime.errors import ServiceError, UsageError

SYSTEM_FOLDER = Path("/etc/systemd/system")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_ASKED = (
    "LoadState", "ActiveState", "SubState", "Result", "StatusText", "NRestarts", "MainPID",
    "ExecMainStatus", "MemoryCurrent", "MemoryHigh", "MemoryMax",
)  # fmt: skip


@dataclass(frozen=True)
class Installation:
    """Where one unit belongs.

    Attributes:
        name: Its name, without the ending.
        folder: Where unit files of its manager lie.
        systemctl: That manager.
    """

    name: str
    folder: Path
    systemctl: Systemctl

    @staticmethod
    def of(name: str, *, user: bool) -> Installation:
        """The place in this system.

        Raises:
            UsageError: The name is none for a unit.
        """
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"--name is {name!r}.", remedy="Use letters, digits, dots, dashes, underscores."
            )
        return Installation(name, user_folder() if user else SYSTEM_FOLDER, Systemctl(user))

    @property
    def unit(self) -> str:
        """Name of the unit."""
        return f"{self.name}.service"

    @property
    def file(self) -> Path:
        """Its file."""
        return self.folder / self.unit

    def former(self) -> str | None:
        """Text of the unit that is there.

        Raises:
            ServiceError: Somebody else wrote it, or it cannot be read.
        """
        try:
            text = self.file.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ServiceError(f"{self.file} cannot be read: {error.strerror}.") from error
        if not is_own(text):
            raise ServiceError(
                f"{self.file} was not written by boardvoice.",
                remedy="Give another --name, or remove that file.",
            )
        return text

    def require_rights(self) -> None:
        """Refuse early what would fail halfway.

        Raises:
            ServiceError: The system's units are root's.
        """
        if not self.systemctl.user and os.geteuid() != 0:
            raise ServiceError(
                f"{self.folder} is root's.",
                remedy="Run this with sudo, or give --user for a service of your own.",
            )

    def install(self, text: str, *, start: bool) -> None:
        """Write the unit, and have it started now and at every boot.

        What was there before is put back where systemd does not take the new one.

        Raises:
            ServiceError: It cannot be written, or systemd refuses it.
        """
        self.require_rights()
        former = self.former()
        try:
            self._write(text)
            if Systemctl.runs_here():
                self.systemctl.run("daemon-reload")
            self.systemctl.run("enable", self.unit)
        except BaseException:
            self._put_back(former)
            raise
        if start and Systemctl.runs_here():
            # Not waited for: the first load may take minutes.
            self.systemctl.run("restart", "--no-block", self.unit)

    def uninstall(self, *, purge: bool) -> None:
        """Stop and remove it.

        Args:
            purge: Remove what it kept, too, where systemd made the folder for it.

        Raises:
            ServiceError: There is none, or systemd refuses.
        """
        self.require_rights()
        if self.former() is None:
            raise ServiceError(
                f"There is no {self.file}.", remedy="Give the --name that it was installed with."
            )
        running = Systemctl.runs_here()
        if running:
            self.systemctl.run("stop", self.unit)
            if purge:
                self.systemctl.run("clean", "--what=state", "--what=cache", self.unit)
        self.systemctl.run("disable", self.unit)
        self._remove()
        if running:
            self.systemctl.run("daemon-reload")

    def state(self) -> dict[str, str]:
        """What systemd says of it.

        Raises:
            ServiceError: It does not answer.
        """
        return self.systemctl.properties(self.unit, _ASKED)

    def _write(self, text: str) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with atomic_file(self.file) as stream:
                stream.write(text.encode())
                os.fchmod(stream.fileno(), 0o644)
        except OSError as error:
            raise ServiceError(
                f"{self.file} cannot be written: {error.strerror or error}.",
                remedy="On a read-only system, write --dry-run's output into its image.",
            ) from error

    def _remove(self) -> None:
        try:
            self.file.unlink(missing_ok=True)
            fsync_path(self.folder)
        except OSError as error:
            raise ServiceError(f"{self.file} cannot be removed: {error.strerror}.") from error

    def _put_back(self, former: str | None) -> None:
        with contextlib.suppress(ServiceError):
            if former is None:
                self._remove()
            else:
                self._write(former)
            if Systemctl.runs_here():
                self.systemctl.run("daemon-reload")


def user_folder() -> Path:
    """Where a user's own units lie."""
    config = os.environ.get("XDG_CONFIG_HOME", "")
    base = Path(config) if os.path.isabs(config) else Path.home() / ".config"
    return base / "systemd" / "user"
