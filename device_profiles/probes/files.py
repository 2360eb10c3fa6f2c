"""Reads small files below a root; what is not there or not readable is empty."""

from __future__ import annotations

from pathlib import Path


def read_bytes(file: Path) -> bytes:
    """Content of a file, or nothing."""
    try:
        return file.read_bytes()
    except OSError:
        return b""


def read_text(file: Path) -> str:
    """Content of a file without spaces around it, or nothing."""
    return read_bytes(file).decode("utf-8", errors="replace").strip()


def shown(file: Path, root: Path) -> str:
    """A file's path as it is on the board."""
    try:
        return f"/{file.relative_to(root)}"
    except ValueError:
        return str(file)


def numbers(text: str) -> list[int]:
    """CPU numbers of a list such as ``0-3,6``; what is no such list is empty."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()):
            continue
        found.extend(range(int(first), int(last or first) + 1))
    return found
