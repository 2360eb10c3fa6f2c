"""Removes prepared folders that nobody will want again.

A folder is never removed while a process uses it, and otherwise only if

- its bundle is no longer where it was, or is another one now, and it was not used for a week or
  two others like it were used since,
- it was made for another CPU, ONNX Runtime or layout, and was not used for 30 days: several
  versions of ONNX Runtime may share one state folder,
- or the disk has no room for a new preparation; then the first kind goes, and what was prepared
  from the same bundle for another CPU or version.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from edge_runtime.atomic import remove_folder
from edge_runtime.bundle import MANIFEST, sha256_of
from edge_runtime.errors import BundleError
from edge_runtime.prepare.folder_use import FolderUse
from edge_runtime.prepare.key import PreparationKey
from edge_runtime.prepare.prepared_info import INFO, PreparedInfo

_DAY = 24 * 3600.0
_GONE_DAYS = 7
_GONE_KEPT = 2
_OTHER_DAYS = 30
_NAME = re.compile(r"[0-9a-f]{16}-[0-9a-f]{16}")


@dataclass(frozen=True)
class _Spare:
    """A prepared folder that is not the one being made.

    Attributes:
        folder: Where it is.
        unused_s: Seconds since it was used.
        gone: Whether its bundle is no longer there.
        same_bundle: Whether it was made from the bundle being prepared.
        same_device: Whether it was made for this CPU, ONNX Runtime and layout.
    """

    folder: Path
    unused_s: float
    gone: bool
    same_bundle: bool
    same_device: bool


def prune_old(parent: Path, key: PreparationKey) -> None:
    """Remove what is old, after a preparation.

    Args:
        parent: Folder of all prepared folders.
        key: What was prepared.
    """
    gone = 0
    for spare in sorted(_spares(parent, key), key=lambda spare: spare.unused_s):
        gone += spare.gone
        days = spare.unused_s / _DAY
        if spare.gone:
            old = days > _GONE_DAYS or gone > _GONE_KEPT
        else:
            old = days > _OTHER_DAYS and not spare.same_device
        if old:
            _remove(spare.folder)


def prune_for_room(parent: Path, key: PreparationKey, enough: Callable[[], bool]) -> None:
    """Remove what is least wanted until there is room, before a preparation.

    Args:
        parent: Folder of all prepared folders.
        key: What is to be prepared.
        enough: Whether there is room now.
    """
    spares = [
        spare
        for spare in _spares(parent, key)
        if spare.gone or (spare.same_bundle and not spare.same_device)
    ]
    for spare in sorted(spares, key=lambda spare: (not spare.gone, -spare.unused_s)):
        if enough():
            return
        _remove(spare.folder)


def _spares(parent: Path, key: PreparationKey) -> Iterator[_Spare]:
    now = time.time()
    for folder in sorted(parent.iterdir()):
        if not _NAME.fullmatch(folder.name) or folder.name == key.folder_name:
            continue
        try:
            info = PreparedInfo.model_validate_json((folder / INFO).read_bytes())
            used = (folder / INFO).stat().st_mtime
        except (OSError, ValidationError):
            # Of another version, or it could not be loaded: nobody finds it under this name.
            info, used = None, folder.stat().st_mtime
        yield _Spare(
            folder,
            unused_s=now - used,
            gone=info is not None
            and info.source != ""
            and not is_bundle(Path(info.source), info.bundle),
            same_bundle=folder.name.startswith(f"{key.bundle_prefix}-"),
            same_device=info is not None
            and (info.cpu, info.runtime, info.layout) == (key.cpu, key.runtime, key.layout),
        )


def is_bundle(folder: Path, manifest: str) -> bool:
    """Whether a bundle lies there whose manifest has this SHA-256."""
    try:
        return sha256_of(folder / MANIFEST) == manifest
    except BundleError:
        return False


def _remove(folder: Path) -> None:
    use = FolderUse.alone(folder)
    if use is not None:
        remove_folder(folder)
        use.end()
