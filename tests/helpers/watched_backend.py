"""A back end that counts runs, and can make the model stop when a test wants it to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edge_runtime.backends.ort import OrtBackend
from edge_runtime.backends.protocol import Array, Binding, Graph
from edge_runtime.bundle import graph_name

# Told the LM's runs so far; True stops, False goes on, None leaves it to the model.
StopRule = Callable[[int], "bool | None"]


@dataclass
class Watch:
    """What ran.

    Attributes:
        runs: Runs by graph.
        rows: Rows of every LM run: the prefill's, then 1 per step.
        batches: First dimension of every ``mu`` the flow was given.
        order: Graph names in the order they ran.
    """

    runs: Counter[str] = field(default_factory=Counter)
    rows: list[int] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    after_run: Callable[[str], None] = lambda name: None

    @property
    def steps(self) -> int:
        """LM runs of one row. (A prefix of these tests always has more.)"""
        return self.rows.count(1)


class WatchedBackend:
    """`OrtBackend` with one thread, watched."""

    def __init__(self, stop: StopRule = lambda runs: None) -> None:
        self.watch = Watch()
        self._stop = stop
        self._ort = OrtBackend(threads=1, spinning=False)

    def load(self, path: Path) -> Graph:
        return _Graph(self._ort.load(path), self.watch, self._stop)


class _Graph:
    def __init__(self, inner: Graph, watch: Watch, stop: StopRule) -> None:
        self._inner = inner
        self._watch = watch
        self._stop = stop

    @property
    def name(self) -> str:
        # A variant over another KV cache counts as the graph it is one of.
        return graph_name(self._inner.name)

    def run(self, feeds: Mapping[str, Array]) -> dict[str, npt.NDArray[np.float32]]:
        results = self._inner.run(feeds)
        _note(self._watch, self.name)
        return results

    def bind(self, *, fixed: bool = False) -> Binding:
        return _Binding(self._inner.bind(fixed=fixed), self.name, self._watch, self._stop)


class _Binding:
    def __init__(self, inner: Binding, name: str, watch: Watch, stop: StopRule) -> None:
        self._inner = inner
        self._name = name
        self._watch = watch
        self._stop = stop
        self._arrays: dict[str, Array] = {}
        self.captured = inner.captured

    def input(self, name: str, array: Array) -> None:
        self._arrays[name] = array
        self._inner.input(name, array)

    def output(self, name: str, array: Array) -> None:
        self._arrays[name] = array
        self._inner.output(name, array)

    def run(self, *, give_back: bool = False) -> None:
        self._inner.run(give_back=give_back)
        if self._name == "lm":
            self._watch.rows.append(self._arrays["rows"].shape[1])
            stop = self._stop(len(self._watch.rows))
            if stop is not None:
                self._arrays["stop_logits"][...] = [[0, 1]] if stop else [[1, 0]]
        if self._name == "flow":
            self._watch.batches.append(len(self._arrays["mu"]))
        _note(self._watch, self._name)

    def sync(self) -> None:
        self._inner.sync()


def _note(watch: Watch, name: str) -> None:
    watch.runs[name] += 1
    watch.order.append(name)
    watch.after_run(name)


def never(runs: int) -> bool:
    """A stop rule: the model goes on for ever."""
    return False
