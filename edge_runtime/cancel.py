"""A token that ends a run from another thread or a signal handler."""

from __future__ import annotations

import threading


class CancelToken:
    """Set once; a run that holds it ends within one patch, with stop reason ``cancelled``.

    Args:
        parent: A token whose cancelling counts for this one too.
    """

    def __init__(self, parent: CancelToken | None = None) -> None:
        self._event = threading.Event()
        self._parent = parent

    def cancel(self) -> None:
        """Ask the run to end. Safe from any thread and from a signal handler."""
        self._event.set()

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._event.is_set() or (self._parent is not None and self._parent.cancelled)
