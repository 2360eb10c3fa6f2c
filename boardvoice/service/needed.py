"""Which files a service reads, and whether the user that it runs as may read them."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from boardvoice.service.sandbox import COVERED
from edge_runtime.errors import ServiceError


def program_folders() -> list[Path]:
    """Where the interpreter and this package are."""
    own = Path(__file__).resolve().parents[2]
    listed = [Path(entry) for entry in sys.path if entry]
    found = [Path(sys.prefix), Path(sys.base_prefix), own, *(p for p in listed if p.is_dir())]
    return _outermost(file.absolute() for file in found)


def below_covered(files: Iterable[Path]) -> list[Path]:
    """Those that lie where the service would not see them, and what links there lead to."""
    both = [place for file in files for place in (file.absolute(), file.resolve())]
    return _outermost(file for file in both if _cover(file) is not None)


def require_readable(files: Iterable[Path], *, uid: int | None) -> None:
    """Refuse what the service's user could not read.

    Args:
        files: Files, and folders with all that is in them.
        uid: Number of that user; None for one that systemd makes up.

    Raises:
        ServiceError: Something is not there, or not for that user.
    """
    for top in files:
        for file in (*_parents(top), *_inside(top)):
            try:
                status = file.stat()
            except OSError as error:
                raise ServiceError(
                    f"{file} cannot be read: {error.strerror or error}.",
                    remedy="Name files that are there.",
                ) from error
            if not _may_read(status, uid):
                raise ServiceError(
                    f"The user that the service runs as may not read {file}.",
                    remedy=f"chmod -R o+rX '{file}', or install with --user.",
                )


def _may_read(status: os.stat_result, uid: int | None) -> bool:
    if uid == 0:
        return True
    read, enter = (
        (stat.S_IRUSR, stat.S_IXUSR) if status.st_uid == uid else (stat.S_IROTH, stat.S_IXOTH)
    )
    if stat.S_ISDIR(status.st_mode):
        return bool(status.st_mode & enter)
    return bool(status.st_mode & read)


def _parents(file: Path) -> Iterator[Path]:
    """Folders on the way that systemd does not make anew for the service."""
    for parent in reversed(file.absolute().parents):
        if _cover(parent) is None:
            yield parent


def _inside(top: Path) -> Iterator[Path]:
    yield top
    if top.is_dir():
        for folder, names, files in os.walk(top):
            yield from (Path(folder, name) for name in (*names, *files))


def _cover(file: Path) -> Path | None:
    return next((folder for folder in COVERED if file.is_relative_to(folder)), None)


def _outermost(files: Iterable[Path]) -> list[Path]:
    kept: list[Path] = []
    for file in sorted(set(files), key=lambda one: (len(one.parts), str(one))):
        # A zip or the root itself tells nothing.
        if file != Path("/") and not any(file.is_relative_to(one) for one in kept):
            kept.append(file)
    return kept
