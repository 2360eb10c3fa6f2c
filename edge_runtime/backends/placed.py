"""A back end that gives every graph to the provider that the plan has for it, or to the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from device_profiles.providers import Provider, TensorRtProvider
from device_profiles.schema import Profile
from edge_runtime.backends.device_graph import DeviceGraph
from edge_runtime.backends.live_session import OpenSession, live_session, open_session
from edge_runtime.backends.node_census import counted, in_words
from edge_runtime.backends.ort import OrtBackend, session_options
from edge_runtime.backends.ort_provider import OrtProvider
from edge_runtime.backends.protocol import Graph
from edge_runtime.backends.tensorrt_options import ShapeRange, tensorrt_options
from edge_runtime.bundle import Bundle, graph_name
from edge_runtime.engines.builder import BUILD_BASE_BYTES, BuildEngine, build_engine
from edge_runtime.engines.cache import EngineCache
from edge_runtime.errors import BackendError, BoardvoiceError
from edge_runtime.memory.guard import MemoryGuard
from edge_runtime.npu.flow_loader import NpuFlowLoader
from edge_runtime.placement import FLOW_GRAPH, PlacementPlan
from edge_runtime.placement_report import PlacementReport
from edge_runtime.prepare.probe import GraphProbe

PORTABLE = "portable"
_MIB = 1 << 20
# Per value: f32 while it is read, and f16 in the engine. Not measured.
_BUILD_BYTES = 6
_VALUE_BYTES = {"f32": 4.0, "f16": 2.0, "int8": 1.0, "int4": 1.0}


@dataclass(frozen=True)
class PlacedBackend:
    """Loads graphs where the plan says.

    A graph is accepted on a provider only when its session has the provider, a run on it succeeds
    and none of its products was left to the CPU. Otherwise the next provider is tried, and the
    report says why.

    Attributes:
        cpu: For what runs on the CPU.
        plan: Providers by graph.
        profile: Their options.
        bundle: What is loaded from.
        report: Takes what went where, and why not elsewhere.
        probes: Inputs to try each graph with, the smallest first.
        ranges: Shapes of dynamic inputs by graph and input.
        engines: Where TensorRT's engines lie.
        guard: Asked before an engine is built.
        npu: Loads the estimator for the NPU; None where it is not meant to be there.
        open: Makes sessions.
        build: Builds engines.
    """

    cpu: OrtBackend
    plan: PlacementPlan
    profile: Profile
    bundle: Bundle
    report: PlacementReport
    probes: Mapping[str, tuple[GraphProbe, ...]]
    ranges: Mapping[str, Mapping[str, ShapeRange]]
    engines: EngineCache
    guard: MemoryGuard = field(default_factory=MemoryGuard)
    npu: NpuFlowLoader | None = None
    open: OpenSession = open_session
    build: BuildEngine = build_engine

    def load(self, path: Path) -> Graph:
        """Load a graph file. See `Backend.load`."""
        graph = graph_name(path.name)
        if self.npu is not None and graph == FLOW_GRAPH:
            return self.npu.load(lambda: self.cpu.load(path))
        for provider in self.plan.chain(graph):
            try:
                loaded = self._load_on(provider, graph, path)
            except BoardvoiceError as error:
                # Which file of the graph it was is of no interest here.
                cause = error.message.rpartition(".onnx: ")[2]
                self.report.refused(graph, provider.name, f"{cause}. {error.remedy}".strip(" ."))
            else:
                self.report.placed(graph, provider.name)
                return loaded
        loaded_here = self.cpu.load(path)
        self.report.placed(graph, "cpu")
        return loaded_here

    def build_engines(self) -> dict[str, Path]:
        """Build what TensorRT is to run, ahead of the first load; the report takes what fails.

        Returns:
            Folders by graph, of engines that were there already too.
        """
        found = {}
        for graph, file in self.bundle.graphs(self.profile.kv.dtype).items():
            for entry in self.plan.chain(graph):
                if not isinstance(entry, TensorRtProvider) or not entry.engine_cache:
                    continue
                provider = OrtProvider.of(entry)
                try:
                    path = self._portable(graph, self.bundle.path(file))
                    chain = self._with_engine(entry, provider, graph, path)
                except BoardvoiceError as error:
                    self.report.refused(graph, entry.name, f"{error.message} {error.remedy}")
                else:
                    found[graph] = Path(chain[0].options["trt_engine_cache_path"])
        return found

    def _load_on(self, entry: Provider, graph: str, path: Path) -> DeviceGraph:
        provider = OrtProvider.of(entry)
        chain = [provider]
        if isinstance(entry, TensorRtProvider):
            path = self._portable(graph, path)
            chain = self._with_engine(entry, provider, graph, path)
        try:
            return self._try(chain, graph, path)
        except BackendError as error:
            if not chain[0].captures:
                raise
            plain = [one.without_capture() for one in chain]
            loaded = self._try(plain, graph, path)
            self.report.note(
                f"{graph} runs on {entry.name} without CUDA graphs: {error.message.rstrip('.')}."
            )
            return loaded

    def _try(self, chain: list[OrtProvider], graph: str, path: Path) -> DeviceGraph:
        options = session_options(
            self.cpu.threads, spinning=self.cpu.spinning, settings=self.cpu.settings
        )
        with counted(options) as census:
            session = live_session(self.open, path, options, chain)
            loaded = DeviceGraph(path.stem, session, chain[0])
            if probes := self.probes.get(graph):
                loaded.run_probe(probes[0])
            found = census(session)
        reason = found.why_not_on(chain[0].ort_name) if probes else ""
        if reason:
            raise BackendError(reason, remedy=_remedy(found.heavy_on_cpu))
        for other in chain[1:]:
            if words := in_words(found.heavy_on(other.ort_name)):
                self.report.note(
                    f"{graph} runs on {chain[0].name} in part: {other.name} has {words} of it."
                )
        return loaded

    def _portable(self, graph: str, path: Path) -> Path:
        portable = path.with_name(f"{graph}.{PORTABLE}.onnx")
        if f"graphs/{portable.name}" not in self.bundle.manifest.files:
            raise BackendError(
                "the bundle has no graph of it in standard operators",
                remedy="Export it again, with int8, f16 or f32 for the flow.",
            )
        self.bundle.verify_graph(f"graphs/{portable.name}")
        return portable

    def _with_engine(
        self, entry: TensorRtProvider, provider: OrtProvider, graph: str, path: Path
    ) -> list[OrtProvider]:
        """Build the engine unless it is there; the providers of the session that loads it."""
        name = f"graphs/{path.name}"
        plain = tensorrt_options(entry, self.profile.flow, path, self.ranges.get(graph, {}), None)
        folder = self.engines.folder(self.bundle, name, {**provider.options, **plain})
        cached = tensorrt_options(
            entry, self.profile.flow, path, self.ranges.get(graph, {}), folder
        )
        chain = [provider.with_options(cached)]
        # What TensorRT does not take, CUDA does.
        chain += [OrtProvider.of(one).without_capture() for one in self.plan.general]
        if entry.engine_cache and self.engines.is_built(folder):
            return chain
        weights = self.bundle.manifest.files.get(f"graphs/{graph}.weights")
        values = (weights.size if weights else 0) / _VALUE_BYTES.get(
            self.bundle.manifest.weights, 1.0
        )
        needed = int(values * _BUILD_BYTES) + BUILD_BASE_BYTES + entry.workspace_mib * _MIB
        self.guard.reserve(needed, f"Building TensorRT's engine of {graph}")
        if entry.engine_cache:
            # Where it is not kept, nothing would be left of a build in another process.
            self.engines.make(folder, lambda: self.build(path, chain, self.cpu.threads))
        return chain


def _remedy(operators: Mapping[str, int]) -> str:
    if "DynamicQuantizeMatMul" in operators:
        return "Export with int8-128, f16 or f32 for it, see docs/providers.md."
    return ""
