"""A tensor that lies in a mapped file: any stored type in, contiguous float32 out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from export.checkpoint.mapped_file import MappedFile
from export.checkpoint.tensor_source import FloatArray

# Our dtype name to numpy's code without byte order; bf16 travels as its 16 bits.
_CODES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "f32": "f4", "f16": "f2", "bf16": "u2", "float64": "f8", "bool": "b1",
        "int8": "i1", "int16": "i2", "int32": "i4", "int64": "i8",
        "uint8": "u1", "uint16": "u2", "uint32": "u4", "uint64": "u8",
    }
)  # fmt: skip
_MAX_DIMS: Final = 32
_MAX_BYTES: Final = 2**62


def itemsize(dtype: str) -> int:
    """Bytes per element of a dtype name as in ``LazyTensor.dtype``."""
    return int(_CODES[dtype][1:])


def shape_problem(shape: object) -> str:
    """Why ``shape``, read from an untrusted file, is no usable shape; empty if it is one."""
    if not isinstance(shape, (list, tuple)):
        return "the shape is no list"
    if len(shape) > _MAX_DIMS:
        return f"the shape has {len(shape)} axes, more than {_MAX_DIMS}"
    if any(type(size) is not int or not 0 <= size < _MAX_BYTES for size in shape):
        return "the shape holds something else than sizes of 0 or more"
    # Zeros are left out, as numpy does: the other axes must be addressable all the same.
    if math.prod(size or 1 for size in shape) * 8 >= _MAX_BYTES:
        return "the shape is larger than memory can be"
    return ""


@dataclass(frozen=True, eq=False)
class MappedTensor:
    """A ``LazyTensor`` over a mapping; whoever makes one has checked that it lies inside.

    Attributes:
        name: Key in the checkpoint.
        shape: Dimensions as stored.
        dtype: As in ``LazyTensor``.
        mapping: The file.
        offset: Byte at which the first element lies.
        strides: Bytes from one element to the next along each axis; None is row-major.
        big_endian: Byte order of the elements.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    mapping: MappedFile
    offset: int
    strides: tuple[int, ...] | None = None
    big_endian: bool = False

    @property
    def file(self) -> Path:
        """File that holds it."""
        return self.mapping.path

    def read(self) -> FloatArray:
        """Whole tensor as contiguous float32 of ``shape``.

        Integers above 2**24 and float64 are rounded to float32.

        Raises:
            ValueError: The source was closed before.
        """
        return self._float32(self._stored())

    def rows(self, start: int, stop: int) -> FloatArray:
        """Rows ``start:stop`` along the first axis as contiguous float32.

        Raises:
            IndexError: A tensor without axes, or a range outside of the first one.
            ValueError: The source was closed before.
        """
        if not self.shape or not 0 <= start <= stop <= self.shape[0]:
            raise IndexError(f"{self.name}: rows {start}:{stop} of shape {self.shape}")
        return self._float32(self._stored()[start:stop])

    def _stored(self) -> npt.NDArray[Any]:
        """View into the mapping in the stored type; nothing is read."""
        code = np.dtype((">" if self.big_endian else "<") + _CODES[self.dtype])
        data = self.mapping.data
        if 0 in self.shape:
            return np.empty(self.shape, code)
        return np.ndarray(self.shape, code, data, self.offset, self.strides)

    def _float32(self, stored: npt.NDArray[Any]) -> FloatArray:
        out = np.empty(stored.shape, np.float32)
        if self.dtype == "bf16":
            # bf16 is the upper half of a float32; shifting in place keeps one array alive.
            bits = out.view(np.uint32)
            bits[...] = stored
            np.left_shift(bits, 16, out=bits)
        else:
            out[...] = stored
        return out
