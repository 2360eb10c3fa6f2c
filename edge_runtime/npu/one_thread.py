"""A thread that makes calls one after another, for a device that may never answer."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
_Job = tuple["Future[Any]", Callable[[], Any]]


class OneThread:
    """Calls run in the order they are submitted, never two at once.

    A daemon, so that a call which hangs in a driver does not keep the process from ending.

    Args:
        name: The thread's.
    """

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        threading.Thread(target=_work, args=(self._jobs,), name=name, daemon=True).start()

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Have it called; the result holds what it returns or raises."""
        future: Future[T] = Future()
        self._jobs.put((future, call))
        return future

    def close(self) -> None:
        """Let the thread end once it is done with what was submitted."""
        self._jobs.put(None)


def _work(jobs: queue.SimpleQueue[_Job | None]) -> None:
    while (job := jobs.get()) is not None:
        future, call = job
        if not future.set_running_or_notify_cancel():
            continue
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - whoever waits for it raises it
            future.set_exception(error)
        # The loop's variables would keep the last call's arrays alive.
        del job, future, call
