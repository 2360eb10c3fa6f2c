"""Who uses a prepared folder: held while it is in use, and marked with when it was used last."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path


class FolderUse:
    """A lock on a folder that many may share; the kernel ends it with its process.

    Args:
        descriptor: Of the folder, locked.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @staticmethod
    def shared(folder: Path) -> FolderUse | None:
        """Use a folder, so that nobody removes it; None if it is not there.

        Where the file system has no locks, nobody can tell that it is free either.
        """
        return FolderUse._locked(folder, fcntl.LOCK_SH)

    @staticmethod
    def alone(folder: Path) -> FolderUse | None:
        """Have a folder for oneself; None if somebody uses it."""
        return FolderUse._locked(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)

    @staticmethod
    def _locked(folder: Path, kind: int) -> FolderUse | None:
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, kind)
        except OSError:
            os.close(descriptor)
            return None
        return FolderUse(descriptor)

    def is_of(self, folder: Path) -> bool:
        """Whether the folder of this name is the one that is held."""
        try:
            return os.path.samestat(os.fstat(self._descriptor), folder.stat())
        except OSError:
            return False

    def end(self) -> None:
        """Let go of the folder."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def __del__(self) -> None:
        self.end()
