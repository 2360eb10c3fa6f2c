"""Atomic files and folders: write under a temporary name, fsync, rename. Nothing half-written."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any


def fsync_path(path: Path) -> None:
    """Flush a file's or folder's data to the medium."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextlib.contextmanager
def atomic_file(path: Path, mode: str = "wb") -> Iterator[IO[Any]]:
    """Open a temporary file beside ``path``; rename it onto ``path`` when the block succeeds."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(temporary, mode) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
        fsync_path(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def atomic_folder(path: Path, *, replace: bool = False) -> Iterator[Path]:
    """Yield a fresh folder beside ``path``; rename it to ``path`` when the block succeeds.

    Args:
        path: Final name. An existing folder there is replaced only with ``replace``.
        replace: Swap out an existing folder (the old one goes once the new one is in place).

    Raises:
        FileExistsError: ``path`` exists and ``replace`` is not set.
    """
    if path.exists() and not replace:
        raise FileExistsError(str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_stale(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    temporary.mkdir()
    try:
        yield temporary
        for file in sorted(temporary.rglob("*")):
            fsync_path(file)
        fsync_path(temporary)
        old = path.with_name(f".{path.name}.{os.getpid()}.old")
        if path.exists():
            os.rename(path, old)
        os.rename(temporary, path)
        fsync_path(path.parent)
        shutil.rmtree(old, ignore_errors=True)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _remove_stale(path: Path) -> None:
    """Remove what a killed process left beside ``path``; an unfinished swap is put back first."""
    for leftover in path.parent.glob(f".{path.name}.*"):
        _, _, pid_and_kind = leftover.name.rpartition(f"{path.name}.")
        pid, _, kind = pid_and_kind.partition(".")
        if kind not in ("part", "old") or not pid.isdigit() or _alive(int(pid)):
            continue
        if kind == "old" and not path.exists():
            os.rename(leftover, path)
        elif leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
