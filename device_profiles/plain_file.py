"""Files that are read to their end: a pipe would be waited for, and a device may have no end."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def read_plain_file(path: Path) -> bytes:
    """Content of a regular file.

    Raises:
        OSError: It cannot be read, or is something else.
    """
    # Opening a pipe would wait for its other end.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return stream.read()
