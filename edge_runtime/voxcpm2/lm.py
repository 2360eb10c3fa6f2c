"""Base and residual LM: prefill and step over one in-place KV cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edge_runtime.backends.protocol import Array, Binding, Graph
from edge_runtime.cancel import CancelToken
from edge_runtime.kv_cache import KVCache
from edge_runtime.voxcpm2.spec import VoxCpm2Spec

FloatArray = npt.NDArray[np.float32]

# Rows per prefill run. Not the KV bucket: what a run computes must not depend on capacities.
PREFILL_ROWS = 256


@dataclass(frozen=True)
class LmOutput:
    """What the last row says.

    Attributes:
        mu: Conditioning of the next patch [1, 2, flow hidden].
        stop_logits: Scores of "go on" and "stop" [1, 2].
    """

    mu: FloatArray
    stop_logits: FloatArray

    @property
    def stop(self) -> bool:
        """Whether the model wants to stop after the patch that `mu` conditions."""
        return int(self.stop_logits[0].argmax()) == 1


class LanguageModel:
    """One request's LM state.

    Args:
        graph: ``lm.onnx``.
        spec: Sizes.
        cache: Empty KV cache.
        choose_rows: Told how many rows of a prefill are left and how many are in the cache, says
            how many the next run is to read; may raise.
    """

    def __init__(
        self,
        graph: Graph,
        spec: VoxCpm2Spec,
        cache: KVCache,
        *,
        choose_rows: Callable[[int, int], int] = lambda left, _: min(left, PREFILL_ROWS),
    ) -> None:
        self._graph = graph
        self._spec = spec
        self._choose_rows = choose_rows
        self.cache = cache
        self._seqlens = np.zeros(1, np.int32)
        self._total = np.zeros((), np.int32)
        self.output = LmOutput(
            np.empty((1, 2, spec.flow.hidden), np.float32), np.empty((1, 2), np.float32)
        )
        self._step_row = np.empty((1, 1, spec.hidden), np.float32)
        self._step: Binding | None = None

    def prefill(
        self, rows: FloatArray, is_audio: FloatArray, cancel: CancelToken | None = None
    ) -> bool:
        """Append rows of the prefix, a piece at a time.

        Args:
            rows: [S, hidden].
            is_audio: [S], 1 where a row is an encoded patch.
            cancel: Checked before every piece.

        Returns:
            False when cancelled.
        """
        start = 0
        while start < len(rows):
            if cancel is not None and cancel.cancelled:
                return False
            left = len(rows) - start
            stop = start + _not_alone(left, self._choose_rows(left, self.cache.rows))
            piece = np.ascontiguousarray(rows[None, start:stop])
            mask = np.ascontiguousarray(is_audio[None, start:stop, None], np.float32)
            self._make_room(piece.shape[1])
            binding = self._bind(piece, mask)
            self._append(binding, piece.shape[1], give_back=True)
            # The next piece, or a step, has a binding of its own.
            binding.sync()
            start = stop
        return True

    def step(self, row: FloatArray) -> None:
        """Append one encoded patch [1, 1, hidden]; `output` then speaks of the next patch."""
        self._make_room(1)
        if self._step is None:
            self._step = self._bind(self._step_row, np.ones((1, 1, 1), np.float32), fixed=True)
        self._step_row[...] = row
        self._append(self._step, 1)

    def release(self) -> None:
        """Give the KV buffers back; the request is over."""
        self._step = None
        self.cache.release()

    def _make_room(self, count: int) -> None:
        if self.cache.rows + count > self.cache.capacity:
            if self._step is not None:
                self._step.sync()
            # The binding holds the old buffers; it goes first so that each can be freed in turn.
            self._step = None
            self.cache.reserve(self.cache.rows + count)

    def _append(self, binding: Binding, count: int, *, give_back: bool = False) -> None:
        total = self.cache.rows + count
        self._seqlens[0] = total - 1
        # A recorded run has one number for all its steps. What is valid is in seqlens_k; this one
        # may be anything from there to the capacity where a run has one row.
        self._total[...] = self.cache.capacity if binding.captured else total
        binding.run(give_back=give_back)
        self.cache.rows = total

    def _bind(self, rows: FloatArray, is_audio: FloatArray, *, fixed: bool = False) -> Binding:
        binding = self._graph.bind(fixed=fixed)
        inputs: dict[str, Array] = {
            "rows": rows,
            "is_audio": is_audio,
            "seqlens_k": self._seqlens,
            "total_rows": self._total,
        }
        for name, array in inputs.items():
            binding.input(name, array)
        for past, present, buffer in zip(
            self.cache.names("past"), self.cache.names("present"), self.cache.buffers, strict=True
        ):
            binding.input(past, buffer)
            binding.output(present, buffer)
        binding.output("mu", self.output.mu)
        binding.output("stop_logits", self.output.stop_logits)
        return binding


def _not_alone(left: int, count: int) -> int:
    """Rows for the next run, so that what comes out does not depend on where a prefix is cut.

    Kernels for a single row differ in the last bits from those for more: in products, and in
    attention, which goes through a run 32 rows or a multiple of that at a time. Three rows are
    left instead; of two, the second last run would become an odd number, which differs as well.
    """
    alone = left - count == 1 or (left == count and count % 32 == 1)
    return left - 3 if alone and left > 3 else count
