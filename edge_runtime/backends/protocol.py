"""What a back end offers: graphs that run on bound arrays."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class Binding(Protocol):
    """Arrays bound to a graph's inputs and outputs, run as often as wanted without copies.

    The arrays stay the caller's: what stands in them when `run` is called is the input, and the
    outputs are written into them. Binding the same array as input and output lets the graph
    update it in place (KV cache); what stands in that array is of use after `sync` only.

    Attributes:
        captured: Whether the device replays a recorded run: then also single numbers, which it
            reads on the host, must be the same at every run.
    """

    captured: bool

    def input(self, name: str, array: Array) -> None:
        """Bind a C-contiguous array as the input ``name``."""
        ...

    def output(self, name: str, array: Array) -> None:
        """Bind a C-contiguous array of the exact shape as the output ``name``."""
        ...

    def run(self, *, give_back: bool = False) -> None:
        """Run the graph once.

        Args:
            give_back: Return scratch memory afterwards. For runs whose shapes differ from those
                of the other runs: what they leave would not fit the next one. Outputs must
                be bound to arrays: one that the back end holds keeps memory from going back.

        Raises:
            BackendError: The graph failed.
        """
        ...

    def sync(self) -> None:
        """Bring what was updated in place back into its arrays, from a device that kept it."""
        ...


class Graph(Protocol):
    """A loaded graph."""

    @property
    def name(self) -> str:
        """File stem, for messages."""
        ...

    def run(self, feeds: Mapping[str, Array]) -> dict[str, npt.NDArray[np.float32]]:
        """Run once on the given inputs and return all outputs by name.

        Raises:
            BackendError: The graph failed.
        """
        ...

    def bind(self, *, fixed: bool = False) -> Binding:
        """Start an empty binding.

        Args:
            fixed: It will run many times with the same arrays; a device may record the run.
        """
        ...


class Backend(Protocol):
    """Loads graphs for one kind of device."""

    def load(self, path: Path) -> Graph:
        """Load a graph file.

        Raises:
            BackendError: The file cannot be loaded.
        """
        ...
