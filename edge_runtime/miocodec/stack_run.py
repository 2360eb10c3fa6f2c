"""Runs a stack of windowed attention over rows of any number, in pieces of bounded size.

A row depends on `reach` rows to either side and no others. A piece is run with so many rows more,
whose results are thrown away, so that the rows are those of one run over all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edge_runtime.backends.protocol import Graph
from edge_runtime.miocodec.bound_run import bound_run
from edge_runtime.miocodec.spec import StackSpec

FloatArray = npt.NDArray[np.float32]
# Told the rows of every run before it; may raise.
Look = Callable[[int], None]

# Rows of one run, at most; more where the surroundings alone take half of that.
_ROWS = 1536


@dataclass(frozen=True)
class Piece:
    """One run.

    Attributes:
        first: First row of the run.
        stop: One past its last row.
        kept: First row whose result is kept, and one past the last.
    """

    first: int
    stop: int
    kept: tuple[int, int]


@dataclass(frozen=True)
class StackPorts:
    """What goes into a stack's graph and what comes out.

    Attributes:
        input: Name of the rows that go in.
        output: Name of what comes out.
        width: Width of an output row.
        more: Output rows per input row.
        fewer: Input rows per output row; what makes no whole one at the end is left out.
    """

    input: str
    output: str
    width: int
    more: int = 1
    fewer: int = 1

    def rows(self, count: int) -> int:
        """Output rows of so many input rows."""
        return count * self.more // self.fewer


def most_rows(stack: StackSpec) -> int:
    """Rows of the largest run."""
    return -(-max(_ROWS, 4 * stack.reach) // stack.block) * stack.block


def pieces(stack: StackSpec, rows: int) -> Iterator[Piece]:
    """Cut rows into runs; all start on a block, so that blocks are the same in every run."""
    most = most_rows(stack)
    if rows <= most:
        yield Piece(0, rows, (0, rows))
        return
    around = -(-stack.reach // stack.block) * stack.block
    start = 0
    while start < rows:
        first = max(start - around, 0)
        stop = min(first + most, rows)
        end = rows if stop == rows else stop - around
        yield Piece(first, stop, (start, end))
        start = end


def run_stack(
    graph: Graph,
    stack: StackSpec,
    rows: FloatArray,
    ports: StackPorts,
    further: Mapping[str, FloatArray] | None = None,
    look: Look | None = None,
) -> FloatArray:
    """Run a stack.

    Args:
        graph: The stack's graph.
        stack: Its sizes.
        rows: [N, width of an input row].
        ports: Names and sizes of its input and output.
        further: Inputs that are the same in every run.
        look: Told the rows of every run before it.

    Returns:
        [N * more // fewer, width of an output row].
    """
    total = ports.rows(len(rows))
    result = np.empty((total, ports.width), np.float32)
    for piece in pieces(stack, len(rows)):
        count = piece.stop - piece.first
        padded = -(-count // stack.block) * stack.block
        if look is not None:
            look(padded)
        part = np.zeros((padded, rows.shape[1]), np.float32)
        part[:count] = rows[piece.first : piece.stop]
        absent = np.zeros(padded, np.float32)
        absent[count:] = 1
        cos, sin = rotation(stack, piece.first, padded)
        inputs = {ports.input: part, "absent": absent, "cos": cos, "sin": sin, **(further or {})}
        found = bound_run(graph, inputs, {ports.output: (ports.rows(padded), ports.width)})
        start, end = (min(ports.rows(row), total) for row in piece.kept)
        skipped = ports.rows(piece.first)
        result[start:end] = found[ports.output][start - skipped : end - skipped]
    return result


def rotation(stack: StackSpec, first: int, count: int) -> tuple[FloatArray, FloatArray]:
    """Cosines and sines [count, head size / 2] of positions from ``first`` on."""
    exponents = np.arange(0, stack.head_size, 2, dtype=np.float32) / np.float32(stack.head_size)
    # The reference rounds to f32 at every step; the same steps keep the angles equal.
    frequencies = np.float32(1) / np.power(np.float32(stack.theta), exponents)
    positions = np.arange(first, first + count, dtype=np.float32)
    angles = np.outer(positions, frequencies).astype(np.float64)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
