"""One checkpoint file as a read-only mapping: pages come from the file, never anonymous memory."""

from __future__ import annotations

import mmap
import stat
from pathlib import Path

from edge_runtime.errors import CheckpointError

_AGAIN = "Download the file again."


class MappedFile:
    """A whole regular file mapped read-only.

    Args:
        path: File to map; it must not shrink while it is mapped.

    Raises:
        CheckpointError: Missing, a folder, no regular file, empty, unreadable or not mappable.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            # Asked before opening: opening a pipe would wait for a writer.
            mode = path.stat().st_mode
            if stat.S_ISDIR(mode):
                raise CheckpointError(f"{path} is a folder, not a file.", remedy=_AGAIN)
            if not stat.S_ISREG(mode):
                raise CheckpointError(f"{path} is not a regular file.", remedy=_AGAIN)
            with path.open("rb") as stream:
                self._size = stream.seek(0, 2)
                if not self._size:
                    raise CheckpointError(f"{path} is empty (0 bytes).", remedy=_AGAIN)
                self._data: mmap.mmap | None = mmap.mmap(
                    stream.fileno(), self._size, access=mmap.ACCESS_READ
                )
        except FileNotFoundError:
            raise CheckpointError(f"{path} does not exist.", remedy=_AGAIN) from None
        except (OSError, ValueError, OverflowError) as error:
            raise CheckpointError(
                f"{path} cannot be read: {error}.",
                remedy="Check its permissions and the medium, or download it again.",
            ) from error

    def __len__(self) -> int:
        """Size in bytes."""
        return self._size

    @property
    def data(self) -> mmap.mmap:
        """The mapping itself, as a buffer.

        Raises:
            ValueError: The file was closed before.
        """
        if self._data is None:
            raise ValueError(f"{self.path} was closed; open the checkpoint again.")
        return self._data

    def chunk(self, start: int, size: int) -> bytes:
        """Copy of ``size`` bytes from ``start``; fewer where the file ends."""
        return self.data[start : start + size]

    def close(self) -> None:
        """Drop the mapping; safe to call twice."""
        # Not mmap.close(): an array that still looks into the mapping keeps it alive.
        self._data = None
