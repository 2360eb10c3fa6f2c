"""Which toolkit wrote an ``.rknn`` file; read without the toolkit."""

from __future__ import annotations

import json
import struct
from pathlib import Path

_HEADER = 64
_MOST = 1 << 24


def toolkit_version(file: Path) -> str:
    """Version of rknn-toolkit2, such as ``2.5.0``; empty if the file does not say.

    The layout, as seen in files of toolkit 2.5.0: 64 bytes of header with the magic, format and
    length of the body, the body, then the length of a JSON text and the text.
    """
    try:
        with file.open("rb") as stream:
            header = stream.read(_HEADER)
            if len(header) < _HEADER or header[:4] != b"RKNN":
                return ""
            (body,) = struct.unpack_from("<Q", header, 16)
            stream.seek(_HEADER + min(body, 2**62))
            length = stream.read(8)
            if len(length) < 8:
                return ""
            text = stream.read(min(struct.unpack("<Q", length)[0], _MOST))
        data = json.loads(text)
    except (OSError, ValueError):
        return ""
    version = data.get("version", "") if isinstance(data, dict) else ""
    return str(version).split("-")[0].split("+")[0].strip()
