"""What a model family gets to run with: back end, profile, guard and measured costs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from device_profiles.schema import Profile
from edge_runtime.backends.protocol import Backend, Graph
from edge_runtime.bundle import Bundle, graph_name
from edge_runtime.errors import BackendError
from edge_runtime.memory.guard import MemoryGuard
from edge_runtime.memory.limits import ProcessMemory
from edge_runtime.placement import NPU_PLACES
from edge_runtime.placement_report import PlacementReport
from edge_runtime.prepare.prepared_bundle import PreparedBundle
from edge_runtime.prepare.prepared_info import GraphCost, Workspace
from edge_runtime.runtime_choice import RuntimeChoice

_LOG = logging.getLogger("boardvoice")
_MIB = 1 << 20
# Begins the line that says why a bundle runs as it is, in the log and in a run's warnings.
NOT_PREPARED = "Not prepared for this device: "
# Where nothing was measured: packed weights are copies of the file, and some scratch memory.
_PACKED_FACTOR = {"f32": 1.05, "f16": 3.1, "int8": 1.05, "int4": 1.05}
_SESSION_BYTES = 4 * _MIB
_WORKSPACES = (Workspace(size=1, bytes=16 * _MIB),)


@dataclass(frozen=True)
class Resources:
    """Everything of the device that a family needs.

    Attributes:
        backend: Loads graphs.
        profile: Limits of the device.
        guard: Asked before memory grows.
        costs: Anonymous memory by graph, measured when the bundle was prepared; empty otherwise.
        not_prepared: Why the bundle runs without prepared weights; empty when it has them.
        fallback: Whether it was meant to have them.
        kv_fallback: Why the KV cache is not in the type that the profile asked for; empty if it is.
        measured: Memory that loading each graph took, as it was just now: anonymous, and what a
            GPU or NPU took from the system's.
        runtime: How graphs are run.
        notes: What the profile asked for and did not get, with the reason.
        estimates: Scratch memory by graph where nothing was measured; the family fills it in.
        prepared: The prepared files that `backend` loads graphs from, or None.
        plain: The same back end without them.
        unfit: Why a prepared graph runs from the bundle itself after all, by graph.
        placement: Which provider runs which graph, and why not another.
        on_device: Graphs that are meant to leave the CPU: they have nothing of the prepared files.
    """

    backend: Backend
    profile: Profile
    guard: MemoryGuard = field(default_factory=MemoryGuard)
    costs: Mapping[str, GraphCost] = field(default_factory=dict)
    not_prepared: str = ""
    fallback: bool = False
    kv_fallback: str = ""
    measured: dict[str, int] = field(default_factory=dict)
    runtime: RuntimeChoice = field(default_factory=RuntimeChoice)
    notes: tuple[str, ...] = ()
    estimates: dict[str, tuple[Workspace, ...]] = field(default_factory=dict)
    prepared: PreparedBundle | None = None
    plain: Backend | None = None
    unfit: dict[str, str] = field(default_factory=dict)
    placement: PlacementReport = field(default_factory=PlacementReport)
    on_device: Callable[[str], bool] = lambda graph: False

    def load(self, bundle: Bundle, name: str) -> Graph:
        """Load a graph file of a bundle, after the guard has agreed.

        Raises:
            BackendError: The file cannot be loaded.
            MemoryBudgetError: There is no room for it.
        """
        graph = graph_name(name)
        if self.prepared is not None and self._elsewhere(graph):
            # It is read from the bundle itself, whose graphs nobody has looked at.
            bundle.verify_graph(name)
        try:
            return self._load(self.backend, bundle, name)
        except BackendError as error:
            if self.plain is None or graph not in self.costs or graph in self.unfit:
                raise
            self._give_up(graph, error)
        # Prepared files were trusted in place of these.
        bundle.verify_graph(name)
        loaded = self._load(self.plain, bundle, name)
        self.placement.placed(graph, "cpu")
        return loaded

    def _load(self, backend: Backend, bundle: Bundle, name: str) -> Graph:
        graph, path = graph_name(name), bundle.path(name)
        cost = self.cost(bundle, name)
        prepared = graph in self.costs and not self._elsewhere(graph)
        mapped = weight_bytes(bundle, name) * (2 if prepared else 1)
        self.guard.reserve(cost.session_bytes, f"Loading {graph}", mapped=mapped)
        self.guard.device_bytes.pop(graph, None)
        free, before = self.guard.available_memory(), ProcessMemory.read().anonymous
        loaded = backend.load(path)
        grown = max(ProcessMemory.read().anonymous - before, 0)
        if self.placement.places.get(graph, "cpu") != "cpu":
            # A Jetson's GPU has no memory of its own: its share shows only in what is left.
            fallen = free - self.guard.available_memory()
            self.guard.device_bytes[graph] = max(fallen - grown, 0)
        self.measured[graph] = grown + self.guard.device_bytes.get(graph, 0)
        return loaded

    def _elsewhere(self, graph: str) -> bool:
        """Whether a graph leaves the CPU, as it was found when loaded, or as it is meant to.

        Behind the NPU stands the CPU with its own graph.
        """
        place = self.placement.places.get(graph)
        return place not in ("cpu", *NPU_PLACES) if place is not None else self.on_device(graph)

    def _give_up(self, graph: str, error: BackendError) -> None:
        """Run a graph from the bundle itself, and have all of them prepared again."""
        again = self.prepared is not None and self.prepared.discard()
        reason = f"The prepared {graph} cannot be loaded and runs unprepared: {error.message} " + (
            "All are prepared again at the next load."
            if again
            else "Run 'boardvoice prepare --force' where the state folder can be written."
        )
        self.unfit[graph] = reason
        _LOG.warning(reason)

    def cost(self, bundle: Bundle, name: str) -> GraphCost:
        """What a graph file takes: measured if the bundle is prepared, estimated if not."""
        graph = graph_name(name)
        measured = self.costs.get(graph)
        if measured is not None and graph not in self.unfit and not self._elsewhere(graph):
            return measured
        factor = _PACKED_FACTOR.get(bundle.manifest.weights, max(_PACKED_FACTOR.values()))
        packed = weight_bytes(bundle, name) * factor
        return GraphCost(
            session_bytes=int(packed) + _SESSION_BYTES,
            workspaces=self.estimates.get(graph, _WORKSPACES),
        )


def weight_bytes(bundle: Bundle, name: str) -> int:
    """Bytes of a graph's weight file; 0 when it has none."""
    folder, _, _ = name.rpartition("/")
    entry = bundle.manifest.files.get(f"{folder}/{graph_name(name)}.weights")
    return entry.size if entry is not None else 0
