"""glibc's allocator: give freed memory back, keep the number of its arenas down."""

from __future__ import annotations

import ctypes
import sys
from functools import lru_cache
from typing import Any

# Blocks of this size and more are mapped, and go back to the kernel when they are freed.
MMAP_THRESHOLD = 128 * 1024
_M_ARENA_MAX = -8
_M_MMAP_THRESHOLD = -3
_M_TRIM_THRESHOLD = -1


@lru_cache(maxsize=1)
def _libc() -> Any | None:
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    # musl has neither; there freed memory goes back by itself.
    return library if hasattr(library, "malloc_trim") and hasattr(library, "mallopt") else None


def trim() -> bool:
    """Give free heap pages back to the kernel; returns whether this system can."""
    library = _libc()
    if library is None:
        return False
    library.malloc_trim(ctypes.c_size_t(0))
    return True


def limit_arenas(count: int) -> bool:
    """Bound the per-thread arenas, each of which reserves 64 MiB of address space."""
    library = _libc()
    return library is not None and bool(library.mallopt(_M_ARENA_MAX, count))


def fix_thresholds(threshold_bytes: int) -> bool:
    """Serve blocks of this size and more by mmap, and trim the heap's top beyond it, always.

    By default glibc raises both with the largest block ever freed, after which large blocks
    stay in the heap and fragment it.
    """
    library = _libc()
    if library is None:
        return False
    return bool(
        library.mallopt(_M_MMAP_THRESHOLD, threshold_bytes)
        and library.mallopt(_M_TRIM_THRESHOLD, threshold_bytes)
    )
