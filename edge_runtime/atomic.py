"""Atomic files and folders: write under a temporary name, fsync, rename. Nothing half-written.

Devices, pipes and a process's open files cannot be renamed over: those are written into.
"""

from __future__ import annotations

import contextlib
import errno
import io
import itertools
import os
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

# Temporary paths that this process is writing. In a container a restarted process often has the
# number of the one that was killed, so a number alone does not tell whose leftover it is.
_in_use: set[str] = set()
_serial = itertools.count()
_MOST_LINKS = 40
_LEFTOVER = re.compile(r"\.(?P<name>.+)\.\d+-\d+\.(?P<kind>part|old)")
_REFUSED = (
    (stat.S_ISDIR, "it is a folder"),
    (stat.S_ISBLK, "it is a block device"),
    (stat.S_ISSOCK, "it is a socket"),
)


def fsync_path(path: Path) -> None:
    """Flush a file's or folder's data to the medium."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextlib.contextmanager
def atomic_file(path: Path, mode: str = "wb") -> Iterator[IO[Any]]:
    """Open a temporary file beside ``path``; rename it onto ``path`` when the block succeeds.

    A symlink is followed: what it points to is replaced, not the link. A character device, a pipe
    and an open file of this process (``/dev/stdout``) stay what they are: when the block succeeds,
    all that it wrote is written into them.

    Args:
        path: File to make or replace.
        mode: ``wb`` or ``w+b``; ``w`` for text, into regular files only.

    Raises:
        OSError: It cannot be written; or it is a folder, a block device or a socket.
    """
    if _is_written_into(path):
        content = io.BytesIO()
        yield content
        with _opened(path) as sink:
            sink.write(content.getbuffer())
        return
    path = Path(os.path.realpath(path))
    remove_stale(path)
    with _beside(path, "part") as temporary:
        try:
            with open(temporary, mode) as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(temporary, path)
            fsync_path(path.parent)
        except BaseException:
            _remove(temporary)
            raise


def try_file(path: Path) -> None:
    """Find out whether `atomic_file` can write there, and leave nothing behind.

    Raises:
        OSError: It cannot.
    """
    if _is_written_into(path):
        if not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return
    with _beside(Path(os.path.realpath(path)), "part") as temporary:
        temporary.touch(exist_ok=False)
        temporary.unlink()


@contextlib.contextmanager
def atomic_folder(path: Path, *, replace: bool = False) -> Iterator[Path]:
    """Yield a fresh folder beside ``path``; rename it to ``path`` when the block succeeds.

    Args:
        path: Final name. An existing folder there is replaced only with ``replace``.
        replace: Swap out an existing folder (the old one goes once the new one is in place).

    Raises:
        FileExistsError: ``path`` exists and ``replace`` is not set.
    """
    # First, since it may put an old folder back whose swap was cut short.
    remove_stale(path)
    if os.path.lexists(path) and not replace:
        raise FileExistsError(str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    with _beside(path, "part") as temporary:
        try:
            temporary.mkdir()
            yield temporary
            for file in sorted(temporary.rglob("*")):
                fsync_path(file)
            fsync_path(temporary)
            _swap(temporary, path, replace)
        except BaseException:
            _remove(temporary)
            raise


def _swap(temporary: Path, path: Path, replace: bool) -> None:
    if not replace:
        if os.path.lexists(path):
            raise FileExistsError(str(path))
        os.rename(temporary, path)
        fsync_path(path.parent)
        return
    with _beside(path, "old") as old:
        try:
            while True:
                if os.path.lexists(path):
                    os.rename(path, old)
                try:
                    os.rename(temporary, path)
                    break
                except OSError as error:
                    # Another process has put its own there in between: that is replaced as well.
                    if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                        raise
                    _remove(old)
            fsync_path(path.parent)
        except BaseException:
            if os.path.lexists(old) and not os.path.lexists(path):
                os.rename(old, path)
            raise
        _remove(old)


def _is_written_into(path: Path) -> bool:
    """Whether a rename would put a regular file in the place of something else."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False  # nothing there, or opening it will say what is wrong
    for is_kind, words in _REFUSED:
        if is_kind(mode):
            raise OSError(errno.EINVAL, words, str(path))
    return not stat.S_ISREG(mode) or _own_descriptor(path) is not None


def _own_descriptor(path: Path) -> int | None:
    """Number of the open file of this process that a path leads to, as /dev/stdout does."""
    for _ in range(_MOST_LINKS):
        if not path.is_symlink():
            break
        folder = os.path.realpath(path.parent)
        if folder == f"/proc/{os.getpid()}/fd" and path.name.isdecimal():
            return int(path.name)
        path = Path(folder, os.readlink(path))
    return None


def _opened(path: Path) -> IO[bytes]:
    descriptor = _own_descriptor(path)
    # Opened anew, a redirected file would be written from its start.
    return path.open("wb") if descriptor is None else os.fdopen(os.dup(descriptor), "wb")


@contextlib.contextmanager
def _beside(path: Path, kind: str) -> Iterator[Path]:
    """Yield a name beside ``path`` that nobody else takes and that says which process uses it."""
    name = path.with_name(f".{path.name}.{os.getpid()}-{next(_serial)}.{kind}")
    key = os.path.abspath(name)
    _in_use.add(key)
    try:
        yield name
    finally:
        _in_use.discard(key)


def remove_stale(path: Path) -> None:
    """Remove what a killed process left beside ``path``; an unfinished swap is put back first."""
    prefix = f".{path.name}."
    try:
        names = sorted(os.listdir(path.parent))
    except OSError:
        return
    for name in names:
        owner, _, kind = name.removeprefix(prefix).partition(".")
        if not name.startswith(prefix) or kind not in ("part", "old"):
            continue
        leftover, pid = path.with_name(name), owner.partition("-")[0]
        if not pid.isdecimal() or _used(leftover, int(pid)):
            continue
        if kind == "old" and not os.path.lexists(path):
            os.rename(leftover, path)
        else:
            _remove(leftover)


def remove_leftovers(folder: Path, *, alone: bool = False) -> None:
    """Remove what killed processes left of any file in a folder.

    Args:
        folder: Where to look; it may not be there.
        alone: Nobody else writes there now, so that a process number, which may have been given
            to another program since, is not asked.
    """
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    for name in names:
        found = _LEFTOVER.fullmatch(name)
        if found is None:
            continue
        leftover = folder / name
        if alone and found["kind"] == "part":
            if os.path.abspath(leftover) not in _in_use:
                _remove(leftover)
        else:
            remove_stale(folder / found["name"])


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it, so that they stay through a power loss.

    Raises:
        OSError: It cannot be made.
    """
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    fsync_path(folder.parent)


def remove_file(path: Path) -> bool:
    """Remove a file so that it stays removed; returns whether it was there.

    Raises:
        OSError: It cannot be removed.
    """
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    fsync_path(path.parent)
    return True


def remove_folder(path: Path) -> None:
    """Remove a folder so that nobody finds half of it, even if this process is killed.

    Raises:
        OSError: It cannot be renamed.
    """
    with _beside(path, "part") as doomed:
        os.rename(path, doomed)
        _remove(doomed)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


def _used(leftover: Path, pid: int) -> bool:
    if pid == os.getpid():
        return os.path.abspath(leftover) in _in_use
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
