"""A back end around another one that notes which graph ran with which shapes."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edge_runtime.backends.protocol import Array, Backend, Binding, Graph
from edge_runtime.bundle import graph_name

# Name and shape of every input, sorted by name.
Shapes = tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True)
class GraphRun:
    """One kind of run.

    Attributes:
        graph: Graph name.
        shapes: Shapes of its inputs.
    """

    graph: str
    shapes: Shapes


@dataclass
class Recorder:
    """Runs by graph and shapes; graphs may run in several threads."""

    runs: Counter[GraphRun] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, run: GraphRun) -> None:
        """Count one run."""
        with self._lock:
            self.runs[run] += 1

    def take(self) -> Counter[GraphRun]:
        """What ran since the last time this was asked."""
        with self._lock:
            taken, self.runs = self.runs, Counter()
        return taken


@dataclass(frozen=True)
class RecordingBackend:
    """Loads graphs of ``inner`` and notes their runs in ``recorder``."""

    inner: Backend
    recorder: Recorder

    def load(self, path: Path) -> Graph:
        """Load a graph file. See `Backend.load`."""
        return _Graph(self.inner.load(path), graph_name(path.name), self.recorder)


@dataclass(frozen=True)
class _Graph:
    inner: Graph
    graph: str
    recorder: Recorder

    @property
    def name(self) -> str:
        return self.inner.name

    def run(self, feeds: Mapping[str, Array]) -> dict[str, npt.NDArray[np.float32]]:
        results = self.inner.run(feeds)
        self.recorder.note(GraphRun(self.graph, _shapes(feeds)))
        return results

    def bind(self, *, fixed: bool = False) -> Binding:
        return _Binding(self.inner.bind(fixed=fixed), self.graph, self.recorder)


class _Binding:
    def __init__(self, inner: Binding, graph: str, recorder: Recorder) -> None:
        self._inner = inner
        self._graph = graph
        self._recorder = recorder
        self.captured = inner.captured
        self._inputs: dict[str, Array] = {}
        # Bindings run thousands of times with the same arrays.
        self._run: GraphRun | None = None

    def input(self, name: str, array: Array) -> None:
        self._inputs[name] = array
        self._run = None
        self._inner.input(name, array)

    def output(self, name: str, array: Array) -> None:
        self._inner.output(name, array)

    def run(self, *, give_back: bool = False) -> None:
        self._inner.run(give_back=give_back)
        if self._run is None:
            self._run = GraphRun(self._graph, _shapes(self._inputs))
        self._recorder.note(self._run)

    def sync(self) -> None:
        self._inner.sync()


def _shapes(arrays: Mapping[str, Array]) -> Shapes:
    return tuple(sorted((name, array.shape) for name, array in arrays.items()))
