"""What an ``.rknn`` file says of itself; read without toolkit or board."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_HEADER = 64
_MOST = 1 << 24
# The custom string stands near the start of the body, in plain text.
_START = 1 << 20


@dataclass(frozen=True)
class RknnFile:
    """Metadata of one file.

    The layout, as seen in files of toolkit 2.5.0: 64 bytes of header with the magic, format and
    length of the body, the body, then the length of a JSON text and the text.

    Attributes:
        toolkit: Version of rknn-toolkit2 that wrote it, such as ``2.5.0``; empty if unknown.
        targets: Chips that it runs on.
        size: Bytes of the file.
    """

    toolkit: str
    targets: tuple[str, ...]
    size: int

    @staticmethod
    def read(file: Path) -> RknnFile | None:
        """Read it; None where the file is missing, torn or something else."""
        data = _metadata(file)
        if data is None:
            return None
        targets = data.get("target_platform")
        return RknnFile(
            toolkit=str(data.get("version", "")).split("-")[0].split("+")[0].strip(),
            targets=tuple(map(str, targets)) if isinstance(targets, list) else (),
            size=file.stat().st_size,
        )


def toolkit_version(file: Path) -> str:
    """Version of rknn-toolkit2, such as ``2.5.0``; empty if the file does not say."""
    found = RknnFile.read(file)
    return found.toolkit if found is not None else ""


def holds_text(file: Path, text: str) -> bool:
    """Whether a text (the custom string of the conversion) stands near a file's start."""
    try:
        with file.open("rb") as stream:
            return text.encode("utf-8") in stream.read(_START)
    except OSError:
        return False


def _metadata(file: Path) -> dict[str, Any] | None:
    try:
        with file.open("rb") as stream:
            header = stream.read(_HEADER)
            if len(header) < _HEADER or header[:4] != b"RKNN":
                return None
            (body,) = struct.unpack_from("<Q", header, 16)
            stream.seek(_HEADER + min(body, 2**62))
            length = stream.read(8)
            if len(length) < 8:
                return None
            text = stream.read(min(struct.unpack("<Q", length)[0], _MOST))
        data = json.loads(text)
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None
