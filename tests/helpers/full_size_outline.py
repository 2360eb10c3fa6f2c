"""The full-size int8 bundle without its weights: manifest and graphs as they were exported, and
files of the right sizes with nothing in them. Enough to plan with, and 45 kB.

To make it anew from an exported bundle:

    tar -C BUNDLE -cJf tests/planning/full-size-int8.tar.xz manifest.json graphs/*.onnx
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

ARCHIVE = Path(__file__).parents[1] / "planning/full-size-int8.tar.xz"


def full_size_outline(folder: Path) -> Path:
    """Unpack it into an empty folder, and return that."""
    with tarfile.open(ARCHIVE) as archive:
        for member in archive.getmembers():
            target = folder / member.name
            target.parent.mkdir(parents=True, exist_ok=True)
            stream = archive.extractfile(member)
            assert stream is not None
            target.write_bytes(stream.read())
    files = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["files"]
    for name, entry in files.items():
        if not (folder / name).exists():
            with (folder / name).open("wb") as empty:
                # Sparse: takes no disk.
                empty.truncate(entry["size"])
    return folder
