"""This process's anonymous memory, the kind that can get it killed."""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType

_INTERVAL_S = 0.05


def rss_anon_bytes(root: Path = Path("/")) -> int:
    """Anonymous resident bytes from ``/proc/self/status``; 0 where the system has no such file.

    File-backed pages (mapped weights) are left out: the kernel can drop those.
    """
    try:
        status = (root / "proc/self/status").read_text(encoding="ascii")
    except OSError:
        return 0
    for line in status.splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


class RssPeak:
    """Samples `rss_anon_bytes` in the background while the block runs.

    Attributes:
        peak: Largest sample so far, in bytes. The kernel keeps no such peak itself, so one
            that lasts less than the 50 ms between samples can be missed.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="rss-peak", daemon=True)
        self.peak = 0

    def take(self) -> None:
        """Take one sample now."""
        self.peak = max(self.peak, rss_anon_bytes(self._root))

    def __enter__(self) -> RssPeak:
        self.take()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._done.set()
        self._thread.join()
        self.take()

    def _sample(self) -> None:
        while not self._done.wait(_INTERVAL_S):
            self.take()
