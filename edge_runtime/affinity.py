"""Keeps a thread, and the threads it starts, on some CPU cores."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator, Iterator
from typing import TypeVar

T = TypeVar("T")


@contextlib.contextmanager
def on_cores(cores: tuple[int, ...]) -> Iterator[None]:
    """Run the block on these cores, then go back to where this thread was allowed before.

    Threads that are started in the block stay on them: a session's pool is started when it loads.

    Args:
        cores: CPU numbers; empty for wherever this thread may run.

    Raises:
        OSError: None of them can be used.
    """
    if not cores:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def pinned(items: Iterator[T], cores: tuple[int, ...]) -> Generator[T, None, None]:
    """The items, each computed on these cores; what the reader does is left where it is."""
    try:
        while True:
            with on_cores(cores):
                try:
                    item = next(items)
                except StopIteration:
                    return
            yield item
    finally:
        getattr(items, "close", lambda: None)()


def why_not(cores: tuple[int, ...]) -> str:
    """Why this thread cannot run on these cores; empty if it can."""
    if not cores:
        return ""
    if not hasattr(os, "sched_setaffinity"):
        return "this system has no CPU affinity"
    missing = set(cores) - os.sched_getaffinity(0)
    if missing:
        return f"this process may not use CPU {', '.join(map(str, sorted(missing)))}"
    return ""
