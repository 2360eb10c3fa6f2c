"""Whether a run gets on."""

from __future__ import annotations

import time


class Pulse:
    """Beats whenever a run has come further; safe from any thread."""

    def __init__(self) -> None:
        self._last: float | None = None

    def beat(self) -> None:
        """The run has begun, has made something, or waits for its reader."""
        self._last = time.monotonic()

    def rest(self) -> None:
        """Nothing computes any more."""
        self._last = None

    def age_s(self) -> float:
        """Seconds since the last beat; 0 while nothing computes."""
        last = self._last
        return 0.0 if last is None else time.monotonic() - last
