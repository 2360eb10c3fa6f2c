"""Samples this process's memory in the background while a block runs."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from edge_runtime.memory.limits import ProcessMemory

INTERVAL_S = 0.05


@dataclass(frozen=True)
class MemorySample:
    """Memory at one moment, in bytes.

    Attributes:
        seconds: When, on ``time.monotonic``.
        anonymous: Resident pages without a file behind them.
        file: Resident pages of mapped files.
        gauges: What else was asked for, by name.
    """

    seconds: float
    anonymous: int
    file: int
    gauges: Mapping[str, int]


class MemoryWatch:
    """Peak, and on request the course, of this process's memory.

    Args:
        root: Where ``proc`` is.
        keep: Keep every sample.
        gauges: Further figures to sample, by name.

    Attributes:
        peak: Largest anonymous memory sampled, in bytes. The kernel keeps no such peak itself,
            so one that lasts less than the 50 ms between samples can be missed.
        samples: All samples, with ``keep``.
    """

    def __init__(
        self,
        root: Path = Path("/"),
        *,
        keep: bool = False,
        gauges: Mapping[str, Callable[[], int]] | None = None,
    ) -> None:
        self._root = root
        self._keep = keep
        self._gauges = dict(gauges or {})
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory-watch", daemon=True)
        self.peak = 0
        self.samples: list[MemorySample] = []

    def take(self) -> None:
        """Take one sample now."""
        memory = ProcessMemory.read(self._root)
        self.peak = max(self.peak, memory.anonymous)
        if self._keep:
            gauges = {name: gauge() for name, gauge in self._gauges.items()}
            now = time.monotonic()
            self.samples.append(MemorySample(now, memory.anonymous, memory.file, gauges))

    def __enter__(self) -> MemoryWatch:
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
        if sys.is_finalizing():
            # Daemon threads are gone by now: from Python 3.13 on joining one waits for ever.
            return
        self._thread.join()
        self.take()

    def _run(self) -> None:
        while not self._done.wait(INTERVAL_S):
            self.take()
