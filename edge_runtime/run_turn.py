"""One run at a time: whose turn it is, and how an abandoned one ends."""

from __future__ import annotations

import threading
from typing import Any

from edge_runtime.cancel import CancelToken
from edge_runtime.errors import UsageError

# How often a waiting run looks whether it was cancelled.
_WAIT_S = 0.1


class RunTurn:
    """A lock that a thread which ended cannot keep."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._giving = threading.Lock()
        self._owner: threading.Thread | None = None
        self._running: Any = None

    def take(self, run: Any, cancel: CancelToken) -> bool:
        """Wait until no other run is under way; False when cancelled meanwhile.

        Args:
            run: Stands for the run; its ``close``, if it has one, ends it.
            cancel: Ends the wait.

        Raises:
            UsageError: This thread has the turn already.
        """
        if self._owner is threading.current_thread():
            raise UsageError(
                "This voice is still streaming in this thread.",
                remedy="Read the stream to its end or close it first.",
            )
        while not self._lock.acquire(timeout=_WAIT_S):
            if cancel.cancelled:
                return False
            owner = self._owner
            if owner is not None and not owner.is_alive():
                # Its stream was never read to the end, and nobody is left to do it.
                abandoned = self._running
                getattr(abandoned, "close", lambda: None)()
                self.give(abandoned)
        self._owner, self._running = threading.current_thread(), run
        return True

    def keep(self, run: Any) -> bool:
        """Go on in this thread; False where another run took the turn when its thread had ended."""
        if self._running is not run:
            return False
        # The stream may have been handed to another thread.
        self._owner = threading.current_thread()
        return True

    def give(self, run: Any) -> None:
        """End the turn of a run, unless that was done for it already."""
        with self._giving:
            if run is None or self._running is not run:
                return
            self._owner, self._running = None, None
            self._lock.release()
