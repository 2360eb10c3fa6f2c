"""KV cache sized by the request, in buckets of rows; only valid rows are ever copied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from edge_runtime.errors import CapacityError, MemoryBudgetError
from edge_runtime.memory.guard import MemoryGuard

KVArray = npt.NDArray[Any]
KVType = Literal["f32", "f16", "int8"]

KV_DTYPES: dict[KVType, np.dtype[Any]] = {
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "int8": np.dtype(np.int8),
}


@dataclass(frozen=True)
class KVShape:
    """What one row costs.

    Attributes:
        layers: Layers with a cache.
        num_kv_heads: Key and value heads per layer.
        head_size: Dimensions per head.
        max_rows: Rows that the model can address.
        bucket_rows: Capacities are multiples of this.
        dtype: Storage of keys and values.
    """

    layers: int
    num_kv_heads: int
    head_size: int
    max_rows: int
    bucket_rows: int
    dtype: KVType = "f32"

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        """Storage as numpy has it."""
        return KV_DTYPES[self.dtype]

    @property
    def row_bytes(self) -> int:
        """Bytes of one row over all layers, keys and values."""
        return 2 * self.layers * self.num_kv_heads * self.head_size * self.numpy_dtype.itemsize

    def capacity(self, rows: int) -> int:
        """Smallest capacity that holds ``rows``.

        Raises:
            CapacityError: More rows than the model can address.
        """
        if rows > self.max_rows:
            raise CapacityError(
                f"The request needs {rows} KV rows, there are {self.max_rows}: the least of "
                "what the bundle and the profile allow.",
                remedy="Shorten the text or the reference and prompt audio, or lower --max-len.",
            )
        buckets = -(-max(rows, 1) // self.bucket_rows)
        return min(buckets * self.bucket_rows, self.max_rows)


@dataclass
class KVPool:
    """Buffers of finished requests, kept for the next one. They come back as they were left.

    A cache's buffers are kept all or not at all, and small caches before large ones: they are
    asked for most, and so what is kept settles after a few requests of any lengths.

    Attributes:
        max_bytes: Most bytes kept.
        live_bytes: Bytes of buffers that requests hold now.
    """

    max_bytes: int
    live_bytes: int = 0
    _kept: dict[tuple[int, ...], list[KVArray]] = field(default_factory=dict)
    # Counted, since a thread that samples memory reads it while a request takes buffers.
    _nbytes: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes kept now."""
        return self._nbytes

    def take(self, shape: tuple[int, ...]) -> KVArray | None:
        """A buffer of exactly this shape, or None."""
        arrays = self._kept.get(shape)
        if not arrays:
            return None
        array = arrays.pop()
        self._nbytes -= array.nbytes
        return array

    def give(self, arrays: Sequence[KVArray]) -> None:
        """Keep the buffers of one cache, unless that would be too much."""
        size = sum(array.nbytes for array in arrays)
        rows = max((array.shape[2] for array in arrays), default=0)
        for shape in sorted(self._kept, key=lambda shape: shape[2], reverse=True):
            if self._nbytes + size <= self.max_bytes or shape[2] <= rows:
                break
            self._nbytes -= sum(array.nbytes for array in self._kept.pop(shape))
        if self._nbytes + size > self.max_bytes:
            return
        for array in arrays:
            self._kept.setdefault(array.shape, []).append(array)
        self._nbytes += size

    def clear(self) -> bool:
        """Drop all; returns whether there was anything."""
        held = self.nbytes > 0
        self._kept.clear()
        self._nbytes = 0
        return held


@dataclass(frozen=True)
class KVSnapshot:
    """The first rows of a cache, to start other requests from.

    Attributes:
        rows: How many.
        buffers: One array [1, heads, rows, head size] per buffer of the cache.
    """

    rows: int
    buffers: tuple[KVArray, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        return sum(buffer.nbytes for buffer in self.buffers)


class KVCache:
    """One key and one value buffer per layer, [1, heads, capacity, head size], updated in place.

    Nothing is zero-filled: the attention kernel neither reads nor writes rows at and beyond
    `rows`.

    Args:
        shape: Sizes.
        rows: Rows to make room for.
        pool: Where buffers come from and go back to.
        guard: Asked before memory is taken.

    Attributes:
        rows: Valid rows.
        capacity: Rows there is room for.
        buffers: Key and value of the first layer, of the second, and so on.
        copied_bytes: Bytes copied so far, by growth and from snapshots: valid rows only.
        fresh_bytes: Bytes that did not come from the pool: they become memory row by row.
    """

    def __init__(
        self,
        shape: KVShape,
        rows: int,
        *,
        pool: KVPool | None = None,
        guard: MemoryGuard | None = None,
    ) -> None:
        self.shape = shape
        self.rows = 0
        self.capacity = shape.capacity(rows)
        self.copied_bytes = 0
        self._pool = pool
        self._guard = guard
        self.buffers = self._first_buffers()
        if pool is not None:
            pool.live_bytes += self.nbytes

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        return self.capacity * self.shape.row_bytes

    def reserve(self, rows: int) -> bool:
        """Make room for ``rows`` in total; copies the valid rows only, one buffer at a time.

        Returns:
            Whether the buffers were replaced (bindings must be renewed).

        Raises:
            CapacityError: More rows than the model can address.
            MemoryBudgetError: No memory for them.
        """
        if rows <= self.capacity:
            return False
        capacity = self.shape.capacity(rows)
        added = (capacity - self.capacity) * self.shape.row_bytes
        self._ask_guard(added, capacity)
        # Where there is room for both, the old ones are for the next request. Else each goes
        # before the next new one comes.
        spare: list[KVArray] | None = [] if self._has_room(capacity) else None
        for index, old in enumerate(self.buffers):
            larger = self._buffer(capacity)
            self._copy(old, larger, self.rows)
            self.buffers[index] = larger
            if spare is not None:
                spare.append(old)
        if self._pool is not None and spare:
            self._pool.give(spare)
        if self._pool is not None:
            self._pool.live_bytes += added
        self.capacity = capacity
        return True

    def snapshot(self, rows: int) -> KVSnapshot:
        """Copy the first rows."""
        return KVSnapshot(rows, tuple(buffer[:, :, :rows].copy() for buffer in self.buffers))

    def restore(self, snapshot: KVSnapshot) -> None:
        """Start with the rows of a snapshot; the cache must be empty.

        Raises:
            CapacityError: More rows than the model can address.
            MemoryBudgetError: No memory for them.
        """
        self.reserve(snapshot.rows)
        for buffer, saved in zip(self.buffers, snapshot.buffers, strict=True):
            self._copy(saved, buffer, snapshot.rows)
        self.rows = snapshot.rows

    def clipped_share(self) -> float:
        """Share of the values of an int8 cache that stand at the end of its range, 0 to 1.

        Those are the values that were cut off, or nearly; 0 for other types.
        """
        if self.shape.dtype != "int8" or not self.rows:
            return 0.0
        # The lower end is -128 or -127, as the kernel has it.
        valid = (buffer[:, :, : self.rows] for buffer in self.buffers)
        count = sum(np.count_nonzero((rows > 126) | (rows < -126)) for rows in valid)
        return count / (self.rows * self.shape.row_bytes)

    def release(self) -> None:
        """Give the buffers back; the cache must not be used afterwards."""
        if self._pool is not None:
            self._pool.live_bytes -= self.nbytes
        self._give(self.buffers)
        self.buffers = []
        self.capacity = self.rows = 0

    def names(self, prefix: str) -> list[str]:
        """Port names of the buffers in order, for ``past`` or ``present``."""
        kinds = ("key", "value")
        return [f"{prefix}_{kind}_{index}" for index in range(self.shape.layers) for kind in kinds]

    def _copy(self, source: KVArray, target: KVArray, rows: int) -> None:
        target[:, :, :rows] = source[:, :, :rows]
        self.copied_bytes += source[:, :, :rows].nbytes

    def _first_buffers(self) -> list[KVArray]:
        """Buffers from the pool as far as it has them, the others new."""
        count = 2 * self.shape.layers
        # Taken before the guard is asked: what it throws out of the pool must not be counted on.
        pooled = [self._pooled(self.capacity) for _ in range(count)]
        buffers = [buffer for buffer in pooled if buffer is not None]
        missing = count - len(buffers)
        self.fresh_bytes = self.nbytes * missing // count
        try:
            self._ask_guard(self.fresh_bytes, self.capacity)
            buffers += [self._buffer(self.capacity) for _ in range(missing)]
        except MemoryBudgetError:
            self._give(buffers)
            raise
        return buffers

    def _ask_guard(self, count: int, capacity: int) -> None:
        if self._guard is not None and count:
            self._guard.reserve(count, f"A KV cache of {capacity} rows")

    def _has_room(self, capacity: int) -> bool:
        """Whether the pool would take the present buffers, and larger ones fit beside them."""
        if self._pool is None or self.nbytes > self._pool.max_bytes:
            return False
        return self._guard is None or self._guard.has_room(capacity * self.shape.row_bytes)

    def _pooled(self, capacity: int) -> KVArray | None:
        return self._pool.take(self._buffer_shape(capacity)) if self._pool is not None else None

    def _give(self, buffers: Sequence[KVArray]) -> None:
        if self._pool is not None:
            self._pool.give(buffers)

    def _buffer(self, capacity: int) -> KVArray:
        pooled = self._pooled(capacity)
        if pooled is not None:
            return pooled
        try:
            return np.empty(self._buffer_shape(capacity), self.shape.numpy_dtype)
        except MemoryError as error:
            raise MemoryBudgetError(
                f"A KV cache of {capacity} rows found no memory.",
                remedy="Raise the limit of this process, or end other programs.",
                needed=capacity * self.shape.row_bytes,
                limited_by="the allocator",
            ) from error

    def _buffer_shape(self, capacity: int) -> tuple[int, ...]:
        return (1, self.shape.num_kv_heads, capacity, self.shape.head_size)
