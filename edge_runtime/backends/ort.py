"""ONNX Runtime's CPU execution provider behind the back-end protocol."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from edge_runtime.backends.live_session import first_line
from edge_runtime.backends.protocol import Array
from edge_runtime.backends.session_settings import SessionSettings
from edge_runtime.bundle import graph_name
from edge_runtime.errors import BackendError, BoardvoiceError, MemoryBudgetError
from edge_runtime.prepare.probe import GraphProbe

PROVIDER = "CPUExecutionProvider"
_ERRORS_ONLY = 3
_SPIN_US = "50"
_MEMORY_SIGNS = (
    "bad_alloc",
    "bad allocation",
    "failed to allocate",
    "cannot allocate memory",
    "out of memory",
)


@dataclass(frozen=True)
class OrtBackend:
    """Loads graphs into ONNX Runtime sessions.

    Attributes:
        threads: Threads of each session's pool (the sessions run in turn, never at once).
        spinning: Whether idle pool threads spin between the nodes of a run; costs power.
        prepared: Folder with graphs prepared for this device, or None. A graph found there is
            loaded from there, its packed weights mapped instead of copied.
        settings: What the profile sets for every session.
    """

    threads: int
    spinning: bool
    prepared: Path | None = None
    settings: SessionSettings = field(default_factory=SessionSettings)

    def load(self, path: Path) -> OrtGraph:
        """Load a graph file. See `Backend.load`."""
        options = session_options(self.threads, spinning=self.spinning, settings=self.settings)
        if self.prepared is not None:
            path = self.prepared / f"{graph_name(path.name)}.onnx"
            # Already optimized; doing it again would only cost time and memory.
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        try:
            session = ort.InferenceSession(str(path), options, providers=[PROVIDER])
        except Exception as error:  # the binding raises a dozen unrelated types
            if out_of_memory(error):
                raise _no_memory(f"Loading {path.name}", error) from error
            raise BackendError(
                f"ONNX Runtime {ort.__version__} cannot load {path}: {first_line(error)}.",
                remedy="Copy or export the bundle again; if it persists, update onnxruntime.",
            ) from error
        return OrtGraph(path.stem, session, self.settings.arena)


def session_options(
    threads: int, *, spinning: bool, settings: SessionSettings | None = None
) -> ort.SessionOptions:
    """The options that every session of this package has."""
    settings = settings or SessionSettings()
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # A pattern is one block per set of shapes, kept for as long as the session lives; most of our
    # shapes come once. See docs/decisions.md.
    options.enable_mem_pattern = False
    options.enable_cpu_mem_arena = settings.arena
    options.log_severity_level = _ERRORS_ONLY
    options.add_session_config_entry("session.intra_op.allow_spinning", str(int(spinning)))
    # Each session has a pool of its own: threads that spin on after a run take the cores from the
    # next session's. Within a run they still spin.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    # As fast as the longer default, and cheaper where others want the core. Older versions do not
    # know it and spin longer.
    options.add_session_config_entry("session.intra_op.spin_duration_us", _SPIN_US)
    for key, value in settings.entries().items():
        options.add_session_config_entry(key, value)
    return options


def _run_options(give_back: bool) -> ort.RunOptions | None:
    if not give_back:
        return None
    options = ort.RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    return options


def save_prepared(
    source: Path, target: Path, threads: int, settings: SessionSettings | None = None
) -> None:
    """Optimize a graph for this CPU and save it with its packed weights beside it.

    ONNX Runtime normally packs weights into anonymous memory at every load. Saved packed, they
    are mapped from the file, and the kernel can drop them under pressure.
    """
    options = session_options(threads, spinning=False, settings=settings)
    options.optimized_model_filepath = str(target)
    for key, value in (
        ("optimized_model_external_initializers_file_name", f"{target.stem}.weights"),
        ("optimized_model_external_initializers_min_size_in_bytes", "1024"),
        ("save_external_prepacked_constant_initializers", "1"),
    ):
        options.add_session_config_entry(f"session.{key}", value)
    ort.InferenceSession(str(source), options, providers=[PROVIDER])


def out_of_memory(error: Exception) -> bool:
    """Whether ONNX Runtime failed for want of memory; it has no type for that."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or any(sign in text for sign in _MEMORY_SIGNS)


@dataclass(frozen=True)
class OrtGraph:
    """One session. See `Graph`."""

    name: str
    session: ort.InferenceSession
    arena: bool = True

    def run(
        self, feeds: Mapping[str, Array], options: ort.RunOptions | None = None
    ) -> dict[str, npt.NDArray[np.float32]]:
        """Run once. See `Graph.run`."""
        names = [output.name for output in self.session.get_outputs()]
        try:
            results = self.session.run(names, dict(feeds), options)
        except Exception as error:  # the binding raises a dozen unrelated types
            raise run_failed(self.name, error) from error
        return _Outputs(self.name, zip(names, results, strict=True))

    def run_probe(self, probe: GraphProbe) -> None:
        """Run once to see what it takes; outputs stay inside ONNX Runtime."""
        binding = self.session.io_binding()
        held = {name: ort.OrtValue.ortvalue_from_numpy(a) for name, a in probe.inputs.items()}
        for name, value in held.items():
            binding.bind_ortvalue_input(name, value)
        for output in self.session.get_outputs():
            source = probe.in_place.get(output.name)
            if source is None:
                binding.bind_output(output.name)
            else:
                binding.bind_ortvalue_output(output.name, held[source])
        self.session.run_with_iobinding(binding)

    def bind(self, *, fixed: bool = False) -> OrtBinding:
        """Start an empty binding. See `Graph.bind`."""
        return OrtBinding(self.name, self.session, self.arena)


class _Outputs(dict[str, npt.NDArray[np.float32]]):
    """Results by name; asking for one that the graph does not have is a damaged bundle."""

    def __init__(self, graph: str, results: Iterable[tuple[str, npt.NDArray[np.float32]]]) -> None:
        super().__init__(results)
        self._graph = graph

    def __missing__(self, name: str) -> npt.NDArray[np.float32]:
        raise run_failed(self._graph, ValueError(f"it has no output {name!r}"))


class OrtBinding:
    """Bound arrays of one session. See `Binding`."""

    captured = False

    def __init__(self, name: str, session: ort.InferenceSession, arena: bool = True) -> None:
        self._name = name
        # Without an arena there is nothing to give back, and asking for it is an error.
        self._arena = arena
        self._session = session
        self._binding = session.io_binding()
        # ONNX Runtime keeps plain pointers: the wrappers and arrays must outlive the binding.
        self._held: dict[int, tuple[Array, ort.OrtValue]] = {}

    def input(self, name: str, array: Array) -> None:
        """Bind an input. See `Binding.input`."""
        value = self._wrapped(array)
        try:
            self._binding.bind_ortvalue_input(name, value)
        except Exception as error:  # the binding raises a dozen unrelated types
            raise run_failed(self._name, error) from error

    def output(self, name: str, array: Array) -> None:
        """Bind an output. See `Binding.output`."""
        value = self._wrapped(array)
        try:
            self._binding.bind_ortvalue_output(name, value)
        except Exception as error:  # the binding raises a dozen unrelated types
            raise run_failed(self._name, error) from error

    def run(self, *, give_back: bool = False) -> None:
        """Run once. See `Binding.run`."""
        try:
            self._session.run_with_iobinding(self._binding, _run_options(give_back and self._arena))
        except Exception as error:  # the binding raises a dozen unrelated types
            raise run_failed(self._name, error) from error

    def sync(self) -> None:
        """Nothing to do: the CPU works in the arrays themselves. See `Binding.sync`."""

    def _wrapped(self, array: Array) -> ort.OrtValue:
        held = self._held.get(id(array))
        if held is None:
            if not array.flags.c_contiguous:
                raise ValueError(f"{self._name}: only C-contiguous arrays can be bound")
            held = (array, ort.OrtValue.ortvalue_from_numpy(array))
            self._held[id(array)] = held
        return held[1]


def run_failed(name: str, error: Exception) -> BoardvoiceError:
    """The typed error for what ONNX Runtime raised in a run."""
    if out_of_memory(error):
        return _no_memory(f"Running {name}", error)
    return BackendError(
        f"ONNX Runtime {ort.__version__} failed in {name}: {first_line(error)}.",
        remedy="Run it again; if it persists, export again or update onnxruntime.",
    )


def _no_memory(what: str, error: Exception) -> MemoryBudgetError:
    return MemoryBudgetError(
        f"{what} found no memory: {first_line(error)}.",
        remedy="Raise the limit of this process, or end other programs.",
        limited_by="the allocator",
    )
