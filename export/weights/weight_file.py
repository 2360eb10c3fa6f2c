"""One file of raw tensors that ONNX graphs refer to as external data, written front to back."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt

# Large tensors start on a 64 KiB boundary so that every OS can map them by themselves.
_LARGE = 64 * 1024
_SMALL_ALIGNMENT = 64


@dataclass(frozen=True)
class StoredTensor:
    """Where a tensor lies.

    Attributes:
        file: File name, relative to the graph.
        offset: First byte.
        length: Bytes.
        dtype: numpy dtype.
        shape: Dimensions.
    """

    file: str
    offset: int
    length: int
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]


class WeightFile:
    """Appends tensors, aligned, and hashes the bytes on the way.

    Args:
        path: File to create.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stream = path.open("xb")
        self._hash = hashlib.sha256()
        self._offset = 0

    @property
    def name(self) -> str:
        """File name, as graphs refer to it."""
        return self._path.name

    @property
    def sha256(self) -> str:
        """Hex digest of all bytes so far."""
        return self._hash.hexdigest()

    @property
    def size(self) -> int:
        """Bytes so far."""
        return self._offset

    def add(
        self,
        shape: tuple[int, ...],
        dtype: npt.DTypeLike,
        pieces: Iterable[npt.NDArray[np.generic]],
    ) -> StoredTensor:
        """Append one tensor given as consecutive pieces in C order.

        Raises:
            ValueError: The pieces do not add up to ``shape`` (a bug of the caller).
        """
        kind = np.dtype(dtype)
        length = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        alignment = _LARGE if length >= _LARGE else _SMALL_ALIGNMENT
        self._write(bytes(-self._offset % alignment))
        start = self._offset
        for piece in pieces:
            data = np.ascontiguousarray(piece, dtype=kind.newbyteorder("<"))
            self._write(data.reshape(-1).view(np.uint8).data)
        if self._offset - start != length:
            raise ValueError(f"wrote {self._offset - start} bytes of {length} for shape {shape}")
        return StoredTensor(self._path.name, start, length, kind, tuple(shape))

    def close(self) -> None:
        """Close the file; the bytes are complete."""
        self._stream.close()

    def __enter__(self) -> WeightFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _write(self, data: bytes | memoryview) -> None:
        if not len(data):
            return
        self._stream.write(data)
        self._hash.update(data)
        self._offset += len(data)
