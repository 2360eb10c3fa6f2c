"""From a bundle's model for the NPU to the estimator that the solver runs, with proof."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass

from device_profiles.flow_placement import FlowSection
from device_profiles.hardware import RequiresSection
from edge_runtime.backends.protocol import Graph
from edge_runtime.bundle import Bundle
from edge_runtime.errors import BackendError, BoardvoiceError
from edge_runtime.golden.golden_file import GoldenFile, GoldenGraph
from edge_runtime.memory.guard import LadderStep, MemoryGuard
from edge_runtime.memory.limits import ProcessMemory
from edge_runtime.npu.adapter import NpuFlowGraph
from edge_runtime.npu.failover import FailoverGraph
from edge_runtime.npu.flow_model import FlowModel
from edge_runtime.npu.record import NpuRecord
from edge_runtime.npu.runner import NpuError, NpuRunner
from edge_runtime.npu.trial import try_golden
from edge_runtime.placement import FLOW_GRAPH, NpuPlace
from edge_runtime.placement_report import PlacementReport

# Opens what computes the estimator; tests put others in its place.
OpenRunner = Callable[[NpuPlace, FlowModel, FlowSection, RequiresSection], NpuRunner]
_MIB, _GIB = 1 << 20, 1 << 30
# What one process may map for the NPU: its IOMMU has 32 bits.
IOMMU_BYTES = 4 * _GIB


@dataclass(frozen=True)
class NpuFlowLoader:
    """Loads the estimator for the NPU, or leaves it to the CPU and says why.

    Attributes:
        place: The NPU, or the simulator in its stead.
        bundle: What is loaded from.
        flow: The profile's part.
        guard: Asked before memory is taken.
        report: Takes what went where, and why not elsewhere.
        open: Opens what computes it.
        requires: Oldest versions that work.
        soc: The board's chip; empty where it is not known.
        verify: Whether the model's SHA-256 is compared with the manifest's.
    """

    place: NpuPlace
    bundle: Bundle
    flow: FlowSection
    guard: MemoryGuard
    report: PlacementReport
    open: OpenRunner
    requires: RequiresSection
    soc: str = ""
    verify: bool = True

    def load(self, load_cpu: Callable[[], Graph]) -> Graph:
        """Load it for the CPU, then for the NPU, and compare.

        Args:
            load_cpu: Loads the CPU's graph, for which the guard has agreed already.

        Returns:
            The estimator on the NPU with the CPU's behind it, or the latter alone.

        Raises:
            BackendError: The CPU's graph cannot be loaded.
        """
        before = ProcessMemory.read().anonymous
        cpu = load_cpu()
        cpu_bytes = max(ProcessMemory.read().anonymous - before, 0)
        record = self.report.npu = NpuRecord(self.place)
        npu: NpuFlowGraph | None = None
        try:
            golden = self._golden()
            model = FlowModel.of(self.bundle, self.soc)
            record.memory_bytes = model.npu_bytes
            if self.verify:
                self.bundle.verify_file(model.entry.model)
            self._reserve(model)
            runner = self.open(self.place, model, self.flow, self.requires)
            npu = NpuFlowGraph(runner, model.form, provider=self.place)
            record.versions = runner.versions()
            # A simulator is slow by nature.
            trial = try_golden(npu, cpu if self.place == "rknn" else None, golden)
            record.snr_db, record.npu_ms, record.cpu_ms = trial.snr_db, trial.npu_ms, trial.cpu_ms
            if (refused := trial.why_not(self.flow.npu_least_snr_db)) is not None:
                raise refused
        except BoardvoiceError as error:
            record.gave_up(error)
            if npu is not None:
                npu.close()
            self.report.refused(FLOW_GRAPH, self.place, record.detail)
            self.report.placed(FLOW_GRAPH, "cpu")
            return cpu

        def again() -> Graph:
            self.guard.reserve(cpu_bytes, "Loading flow for the CPU")
            return load_cpu()

        def failed(error: BackendError) -> None:
            self.report.note(
                f"The CPU took {FLOW_GRAPH} over from {self.place} for good: {record.detail}"
            )
            self.report.placed(FLOW_GRAPH, "cpu")

        graph = FailoverGraph(npu, cpu, again, record, failed)
        self._add_ladder(graph)
        self.report.placed(FLOW_GRAPH, self.place)
        return graph

    def _add_ladder(self, graph: FailoverGraph) -> None:
        # Weak, or the guard would keep an NPU's context after its voice is gone.
        drop = weakref.WeakMethod(graph.drop_cpu)

        def give_back() -> bool:
            alive = drop()
            return alive is not None and alive()

        self.guard.add_step(LadderStep("dropped the CPU's copy of the flow", give_back))

    def _golden(self) -> GoldenGraph:
        found = GoldenFile.of(self.bundle)
        golden = next((g for g in found.graphs if g.graph == FLOW_GRAPH), None) if found else None
        if golden is None or not golden.runs:
            raise NpuError(
                "The bundle has no golden vectors to try the NPU with.", reason="no-golden",
                remedy="Export it again.",
            )  # fmt: skip
        return golden

    def _reserve(self, model: FlowModel) -> None:
        if self.place != "rknn":
            # The simulator runs in a process of its own.
            return
        if model.npu_bytes > IOMMU_BYTES:
            raise NpuError(
                f"The model needs {model.npu_bytes // _MIB} MiB; the NPU reaches "
                f"{IOMMU_BYTES // _MIB} MiB.", reason="memory",
            )  # fmt: skip
        # The package reads the whole file into memory before the NPU gets a copy.
        self.guard.reserve(
            model.file.stat().st_size + model.npu_bytes, "Loading flow onto the NPU"
        )
