"""How far an export is, measured in checkpoint values that have been converted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

from export.checkpoint.tensor_source import FloatArray, LazyTensor

# Told the file being written, the values converted so far, and the values in all.
OnProgress = Callable[[str, int, int], None]


class ExportProgress:
    """Counts values as they are read and knows which file they go to.

    Args:
        callback: Told after every piece, or None.
    """

    def __init__(self, callback: OnProgress | None = None) -> None:
        self._callback = callback
        self._file = ""
        self._done = 0
        self._total = 0

    def watch(self, source: Mapping[str, LazyTensor]) -> Mapping[str, LazyTensor]:
        """The same tensors, counted when they are read."""
        self._total += sum(prod(tensor.shape) for tensor in source.values())
        return _CountedSource(source, self)

    def file(self, name: str) -> None:
        """Note the file that is written from now on."""
        self._file = name
        self.read(0)

    def read(self, values: int) -> None:
        """Note that so many more values were read."""
        self._done += values
        if self._callback is not None:
            self._callback(self._file, self._done, self._total)


@dataclass(frozen=True)
class _CountedSource(Mapping[str, LazyTensor]):
    source: Mapping[str, LazyTensor]
    progress: ExportProgress

    def __getitem__(self, name: str) -> LazyTensor:
        return _CountedTensor(self.source[name], self.progress)

    def __iter__(self) -> Iterator[str]:
        return iter(self.source)

    def __len__(self) -> int:
        return len(self.source)


@dataclass(frozen=True)
class _CountedTensor:
    tensor: LazyTensor
    progress: ExportProgress

    @property
    def name(self) -> str:
        return self.tensor.name

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor.shape

    @property
    def dtype(self) -> str:
        return self.tensor.dtype

    @property
    def file(self) -> Path:
        return self.tensor.file

    def read(self) -> FloatArray:
        values = self.tensor.read()
        self.progress.read(values.size)
        return values

    def rows(self, start: int, stop: int) -> FloatArray:
        values = self.tensor.rows(start, stop)
        self.progress.read(values.size)
        return values
