"""Files that tell whether they are whole: JSON details and bytes, behind a SHA-256 of both.

Three lines and a payload: the magic, the SHA-256 of all that follows, the details. Torn, cut and
altered files are found out when they are read, whatever the file system did with them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from device_profiles.plain_file import read_plain_file
from edge_runtime.atomic import atomic_file

_MAGIC = b"boardvoice sealed 1\n"
_DIGEST = 64


class TornFileError(Exception):
    """A sealed file that is not what was written. The message says why."""


def write_sealed(path: Path, details: Mapping[str, Any], payload: bytes) -> None:
    """Write a sealed file; it appears whole or not at all, and stays through a power loss.

    Raises:
        OSError: It cannot be written.
    """
    line = json.dumps(details, sort_keys=True).encode() + b"\n"
    digest = hashlib.sha256(line)
    digest.update(payload)
    with atomic_file(path) as stream:
        stream.write(_MAGIC + digest.hexdigest().encode() + b"\n" + line)
        stream.write(payload)


def read_sealed(path: Path) -> tuple[dict[str, Any], bytes]:
    """Details and payload of a sealed file.

    Raises:
        FileNotFoundError: It is not there.
        TornFileError: It is not whole, or cannot be read.
    """
    try:
        data = read_plain_file(path)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise TornFileError(f"it cannot be read: {error.strerror or error}") from error
    head = len(_MAGIC) + _DIGEST + 1
    if not data.startswith(_MAGIC) or len(data) <= head:
        raise TornFileError("its beginning is missing")
    if hashlib.sha256(memoryview(data)[head:]).hexdigest().encode() != data[len(_MAGIC) : head - 1]:
        raise TornFileError("it does not match its SHA-256")
    line, _, payload = data[head:].partition(b"\n")
    details = json.loads(line)
    if not isinstance(details, dict):
        raise TornFileError("its details are no object")
    return details, payload
