"""What every checkpoint reader offers: tensors by name, read lazily and piece by piece."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]


class LazyTensor(Protocol):
    """One tensor of a checkpoint; nothing is read from disk until asked for.

    Attributes:
        name: Key in the checkpoint.
        shape: Dimensions as stored.
        dtype: ``"f32"``, ``"f16"`` or ``"bf16"`` for floats, else the numpy name (``"int32"``).
        file: File that holds it, for error messages.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    file: Path

    def read(self) -> FloatArray:
        """Whole tensor as contiguous float32 of ``shape``."""
        ...

    def rows(self, start: int, stop: int) -> FloatArray:
        """Rows ``start:stop`` along the first axis as contiguous float32."""
        ...


class TensorSource(Mapping[str, LazyTensor], Protocol):
    """Tensors of one or more files by name. Close it (or use ``with``) to drop the mappings."""

    def close(self) -> None:
        """Drop file handles and mappings."""
        ...


@dataclass(frozen=True)
class PrefixedSource(Mapping[str, LazyTensor]):
    """View of a source in which every name is looked up under a prefix."""

    source: Mapping[str, LazyTensor]
    prefix: str

    def __getitem__(self, name: str) -> LazyTensor:
        return self.source[self.prefix + name]

    def __iter__(self) -> Iterator[str]:
        cut = len(self.prefix)
        return (name[cut:] for name in self.source if name.startswith(self.prefix))

    def __len__(self) -> int:
        return sum(1 for _ in self)
