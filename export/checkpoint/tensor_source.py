"""What every checkpoint reader offers: tensors by name, read lazily and piece by piece."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from typing_extensions import Self

FloatArray = npt.NDArray[np.float32]


class LazyTensor(Protocol):
    """One tensor of a checkpoint; nothing is read from disk until asked for.

    A plain attribute or a field of a frozen dataclass satisfies each property.
    """

    @property
    def name(self) -> str:
        """Key in the checkpoint."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Dimensions as stored."""
        ...

    @property
    def dtype(self) -> str:
        """``"f32"``, ``"f16"`` or ``"bf16"``; any other type by its numpy name (``"int32"``)."""
        ...

    @property
    def file(self) -> Path:
        """File that holds it, for error messages."""
        ...

    def read(self) -> FloatArray:
        """Whole tensor as contiguous float32 of ``shape``."""
        ...

    def rows(self, start: int, stop: int) -> FloatArray:
        """Rows ``start:stop`` along the first axis as contiguous float32."""
        ...


class TensorSource(Mapping[str, LazyTensor]):
    """Tensors of one or more files by name. Close it (or use ``with``) to drop the mappings."""

    @abstractmethod
    def close(self) -> None:
        """Drop file handles and mappings; tensors of this source cannot be read any more."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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
