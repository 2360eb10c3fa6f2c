"""KV cache sized by the request, in buckets of rows; only valid rows are ever copied."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edge_runtime.errors import CapacityError

FloatArray = npt.NDArray[np.float32]


@dataclass(frozen=True)
class KVShape:
    """What one row costs.

    Attributes:
        layers: Layers with a cache.
        num_kv_heads: Key and value heads per layer.
        head_size: Dimensions per head.
        max_rows: Rows that the model can address.
        bucket_rows: Capacities are multiples of this.
    """

    layers: int
    num_kv_heads: int
    head_size: int
    max_rows: int
    bucket_rows: int

    @property
    def row_bytes(self) -> int:
        """Bytes of one row over all layers, keys and values."""
        return 2 * self.layers * self.num_kv_heads * self.head_size * np.dtype(np.float32).itemsize

    def capacity(self, rows: int) -> int:
        """Smallest capacity that holds ``rows``.

        Raises:
            CapacityError: More rows than the model can address.
        """
        if rows > self.max_rows:
            raise CapacityError(
                f"The request needs {rows} KV rows, this bundle has {self.max_rows}.",
                remedy="Shorten the text or the reference and prompt audio, or lower --max-len.",
            )
        buckets = -(-max(rows, 1) // self.bucket_rows)
        return min(buckets * self.bucket_rows, self.max_rows)


class KVCache:
    """One key and one value buffer per layer, [1, heads, capacity, head size], updated in place.

    Nothing is zero-filled: the attention kernel neither reads nor writes rows at and beyond
    `rows`.

    Args:
        shape: Sizes.
        rows: Rows to make room for.
    """

    def __init__(self, shape: KVShape, rows: int) -> None:
        self.shape = shape
        self.rows = 0
        self.capacity = shape.capacity(rows)
        self.buffers = self._allocate(self.capacity)

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        return self.capacity * self.shape.row_bytes

    def reserve(self, rows: int) -> bool:
        """Make room for ``rows`` in total; copies the valid rows only.

        Returns:
            Whether the buffers were replaced (bindings must be renewed).

        Raises:
            CapacityError: More rows than the model can address.
        """
        if rows <= self.capacity:
            return False
        capacity = self.shape.capacity(rows)
        larger = self._allocate(capacity)
        for new, old in zip(larger, self.buffers, strict=True):
            new[:, :, : self.rows] = old[:, :, : self.rows]
        self.buffers, self.capacity = larger, capacity
        return True

    def names(self, prefix: str) -> list[str]:
        """Port names of the buffers in order, for ``past`` or ``present``."""
        kinds = ("key", "value")
        return [f"{prefix}_{kind}_{index}" for index in range(self.shape.layers) for kind in kinds]

    def _allocate(self, capacity: int) -> list[FloatArray]:
        shape = (1, self.shape.num_kv_heads, capacity, self.shape.head_size)
        return [np.empty(shape, np.float32) for _ in range(2 * self.shape.layers)]
