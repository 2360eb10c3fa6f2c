"""Outputs that say how large the values inside the NPU's estimator get."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt

from export.graph.builder import GraphBuilder

FloatArray = npt.NDArray[np.float32]

# Products that the NPU sums up at once; what it has so far is rounded to f16 in between
# (rknn-toolkit2 2.5.0 for rk3588).
TILE = 1536
LARGEST = "largest"


class Taps(Protocol):
    """Told of the values in a graph while it is built."""

    def see(self, kind: str, value: str) -> None:
        """A value, and what decides whether it stays within f16."""
        ...

    def parts(self, graph: GraphBuilder, value: str, weight: FloatArray) -> Iterator[str]:
        """Partial sums of a convolution, as extra values."""
        ...

    def declare(self, graph: GraphBuilder) -> None:
        """Add the outputs."""
        ...


class NoTaps:
    """For the graph that is converted."""

    def see(self, kind: str, value: str) -> None:
        """Nothing to do."""

    def parts(self, graph: GraphBuilder, value: str, weight: FloatArray) -> Iterator[str]:
        """None."""
        return iter(())

    def declare(self, graph: GraphBuilder) -> None:
        """Nothing to do."""


class LargestValues:
    """One more output ``largest`` f32 [N]: the largest magnitude of each value seen.

    Attributes:
        kinds: What each of them belongs to, in the output's order.
    """

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self._values: list[str] = []

    def see(self, kind: str, value: str) -> None:
        """Remember it. See `Taps.see`."""
        self.kinds.append(kind)
        self._values.append(value)

    def parts(self, graph: GraphBuilder, value: str, weight: FloatArray) -> Iterator[str]:
        """Sums over each tile alone, over the first two, the first three and so on.

        Args:
            graph: Graph under construction.
            value: [B, inputs, kernel rows, S].
            weight: [outputs, inputs] or [outputs, inputs, kernel rows, 1].
        """
        weight = weight.reshape(*weight.shape[:2], -1, 1)
        inputs, height = weight.shape[1:3]
        step = max(1, TILE // height)
        if inputs <= step:
            return
        total = ""
        for start in range(0, inputs, step):
            stop = min(start + step, inputs)
            piece = graph.slice(value, start, stop, 1, name="tile")
            tile = graph.weight(np.ascontiguousarray(weight[:, start:stop]), "tile.weight")
            part = graph.node("Conv", [piece, tile], kernel_shape=[height, 1], name="tile_sum")
            yield part
            total = graph.node("Add", [total, part], name="partial_sum") if total else part
            if start and stop < inputs:
                yield total

    def declare(self, graph: GraphBuilder) -> None:
        """Add the output. See `Taps.declare`."""
        one = graph.axes(1)
        found = []
        for value in self._values:
            size = graph.node("Abs", [value], name="size")
            size = graph.node("ReduceMax", [size], keepdims=0, name="largest_of")
            found.append(graph.node("Reshape", [size, one], name="as_row"))
        largest = graph.node("Concat", found, axis=0, name="all_largest")
        graph.output(largest, LARGEST, [len(found)])
