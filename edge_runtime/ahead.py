"""Runs an iterator in a thread of its own, one item ahead of whoever reads it."""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class _End:
    """The last message of a thread: why its iterator ended."""

    error: BaseException | None = None


@dataclass(frozen=True)
class _Shared:
    """What thread and reader share; the thread holds no reference to the reader's object."""

    permits: threading.Semaphore
    closing: threading.Event
    messages: queue.SimpleQueue[object]


class Ahead(Generic[T]):
    """Iterate it; item n + 1 is computed while the reader works on item n.

    The first item is begun at once, the second when it is asked for, so that the first has the
    machine to itself until the reader is done with it. From then on at most one item is unread.
    What the iterator raises is raised where the item is asked for.

    Close it when it is not read to its end (dropping it, or the interpreter's end, does the
    same): the thread is told, and has ended when `close` returns.

    Args:
        items: Advanced by the thread only.
        interrupt: Called when the rest is not wanted any more; makes a long step end early.
    """

    def __init__(self, items: Iterator[T], interrupt: Callable[[], None]) -> None:
        self._shared = _Shared(threading.Semaphore(1), threading.Event(), queue.SimpleQueue())
        self._read = 0
        self._ended = False
        thread = threading.Thread(
            target=_work, args=(items, self._shared), name="boardvoice-ahead", daemon=True
        )
        # A daemon may not be inside a run when the interpreter goes: this also runs at exit.
        self._finish = weakref.finalize(self, _finish, thread, self._shared, interrupt)
        thread.start()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        if self._ended:
            raise StopIteration
        if self._read == 1:
            self._shared.permits.release()
        message = self._shared.messages.get()
        if isinstance(message, _End):
            self._ended = True
            self.close()
            if message.error is not None:
                raise message.error
            raise StopIteration
        self._read += 1
        if self._read >= 2:
            self._shared.permits.release()
        return message  # type: ignore[return-value]

    def close(self) -> None:
        """End the thread and wait for it; later calls change nothing."""
        self._ended = True
        self._finish()


def _work(items: Iterator[T], shared: _Shared) -> None:
    end = _End()
    try:
        while True:
            shared.permits.acquire()
            if shared.closing.is_set():
                break
            try:
                shared.messages.put(next(items))
            except StopIteration:
                break
    except BaseException as error:  # noqa: BLE001 - the reader raises it
        end = _End(error)
    finally:
        # Reached on every way out: the reader waits for it.
        shared.messages.put(end)


def _finish(thread: threading.Thread, shared: _Shared, interrupt: Callable[[], None]) -> None:
    shared.closing.set()
    interrupt()
    shared.permits.release()
    thread.join()
