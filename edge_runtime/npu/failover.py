"""The estimator on the NPU until it fails once, and on the CPU from that very evaluation on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from edge_runtime.backends.protocol import Array, Binding, Graph
from edge_runtime.errors import BackendError
from edge_runtime.npu.adapter import NpuFlowGraph
from edge_runtime.npu.record import NpuRecord

# Told once, when the CPU takes over.
OnFailure = Callable[[BackendError], None]


class FailoverGraph:
    """The graph ``flow`` with the CPU behind the NPU. See `Graph`.

    It does not go back: an NPU that failed once is not asked again by this process.

    Args:
        npu: The estimator on the NPU.
        cpu: The same on the CPU.
        load_cpu: Loads that again, under the guard, after `drop_cpu`.
        record: Takes what happens.
        on_failure: Told why the CPU took over.
    """

    def __init__(
        self,
        npu: NpuFlowGraph,
        cpu: Graph,
        load_cpu: Callable[[], Graph],
        record: NpuRecord,
        on_failure: OnFailure,
    ) -> None:
        self.name = npu.name
        self._npu = npu
        self._cpu: Graph | None = cpu
        self._load_cpu = load_cpu
        self._record = record
        self._on_failure = on_failure
        self._lock = threading.Lock()
        record.in_use = True

    @property
    def provider(self) -> str:
        """What runs it now."""
        return self._npu.provider if self._record.in_use else "cpu"

    @property
    def record(self) -> NpuRecord:
        """What happened so far."""
        return self._record

    def run(self, feeds: Mapping[str, Array]) -> dict[str, npt.NDArray[np.float32]]:
        """Run once. See `Graph.run`."""
        if self._record.in_use:
            try:
                found = self._npu.run(feeds)
            except BackendError as error:
                self.give_up(error)
            else:
                self._record.evaluations += 1
                return found
        self._record.cpu_evaluations += 1
        return self.cpu().run(feeds)

    def bind(self, *, fixed: bool = False) -> FailoverBinding:
        """Start an empty binding. See `Graph.bind`."""
        return FailoverBinding(self, self._npu.bind(fixed=fixed), self._record, fixed=fixed)

    def give_up(self, error: BackendError) -> None:
        """Have the CPU compute from now on."""
        if not self._record.in_use:
            return
        self._record.gave_up(error)
        self._on_failure(error)
        self._npu.close()

    def cpu(self) -> Graph:
        """The estimator on the CPU.

        Raises:
            MemoryBudgetError: It was dropped, and there is no room for it any more.
        """
        with self._lock:
            if self._cpu is None:
                self._cpu = self._load_cpu()
            return self._cpu

    def drop_cpu(self) -> bool:
        """Give the CPU's copy back while the NPU computes; whether there was one."""
        with self._lock:
            if not self._record.in_use or self._cpu is None:
                return False
            self._cpu = None
            return True

    def close(self) -> None:
        """Release the NPU."""
        self._npu.close()


class FailoverBinding:
    """Arrays bound to the NPU, and to the CPU when it takes over. See `Binding`."""

    captured = False

    def __init__(
        self, graph: FailoverGraph, npu: Binding, record: NpuRecord, *, fixed: bool
    ) -> None:
        self._graph, self._npu, self._record, self._fixed = graph, npu, record, fixed
        self._inputs: dict[str, Array] = {}
        self._outputs: dict[str, Array] = {}
        self._cpu: Binding | None = None

    def input(self, name: str, array: Array) -> None:
        """Bind an input. See `Binding.input`."""
        self._inputs[name] = array
        if self._cpu is not None:
            self._cpu.input(name, array)
        self._bind_npu(self._npu.input, name, array)

    def output(self, name: str, array: Array) -> None:
        """Bind an output. See `Binding.output`."""
        self._outputs[name] = array
        if self._cpu is not None:
            self._cpu.output(name, array)
        self._bind_npu(self._npu.output, name, array)

    def run(self, *, give_back: bool = False) -> None:
        """Run once, on the CPU where the NPU fails: it has changed none of the bound arrays."""
        if self._record.in_use:
            try:
                self._npu.run(give_back=give_back)
            except BackendError as error:
                self._graph.give_up(error)
            else:
                self._record.evaluations += 1
                return
        self._on_cpu().run(give_back=give_back)
        self._record.cpu_evaluations += 1

    def sync(self) -> None:
        """Nothing to do: nothing is updated in place. See `Binding.sync`."""

    def _bind_npu(self, bind: Callable[[str, Array], None], name: str, array: Array) -> None:
        if not self._record.in_use:
            return
        try:
            bind(name, array)
        except BackendError as error:
            self._graph.give_up(error)

    def _on_cpu(self) -> Binding:
        if self._cpu is None:
            binding = self._graph.cpu().bind(fixed=self._fixed)
            for name, array in self._inputs.items():
                binding.input(name, array)
            for name, array in self._outputs.items():
                binding.output(name, array)
            self._cpu = binding
        return self._cpu
