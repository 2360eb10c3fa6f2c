"""Rockchip's run-time library: its version, read from the file."""

from __future__ import annotations

import mmap
import re
from pathlib import Path

# rknn-toolkit-lite2 looks nowhere else.
LIBRARY = "usr/lib/librknnrt.so"
# rknn-toolkit2 2.x writes models that drivers and libraries before these refuse.
OLDEST_DRIVER, OLDEST_LIBRARY = "0.9.6", "2.0.0"
_VERSION = re.compile(rb"librknnrt version: (\d+\.\d+\.\d+)")


def library_version(file: Path) -> str:
    """Version such as ``2.5.0``; empty where the file does not say or cannot be read."""
    try:
        with (
            file.open("rb") as stream,
            mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            found = _VERSION.search(data)
            # A match reads from the mapping, which ends with this block.
            return found[1].decode("ascii") if found else ""
    except (OSError, ValueError):
        return ""
