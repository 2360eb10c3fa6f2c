"""Tensors of one mapped file, whatever its format."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path

from export.checkpoint.mapped_file import MappedFile
from export.checkpoint.tensor_source import LazyTensor, TensorSource


class MappedSource(TensorSource):
    """A tensor source over one file, which stays mapped until it is closed.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._mapping = MappedFile(path)
        try:
            self._tensors = self._parse(self._mapping)
        except BaseException:
            # Nobody gets to close a source that could not be made.
            self._mapping.close()
            raise

    @abstractmethod
    def _parse(self, file: MappedFile) -> Mapping[str, LazyTensor]:
        """Find the file's tensors by name, without reading them."""

    def __getitem__(self, name: str) -> LazyTensor:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def close(self) -> None:
        """Drop the mapping; its tensors cannot be read any more."""
        self._mapping.close()
