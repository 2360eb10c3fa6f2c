"""Graphs on a device with memory of its own: what is updated in place stays there between runs."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from edge_runtime.backends.ort import OrtGraph, run_failed
from edge_runtime.backends.ort_provider import OrtProvider
from edge_runtime.backends.protocol import Array
from edge_runtime.prepare.probe import GraphProbe

# Run option that names a captured graph; -1 runs without.
_CAPTURE_KEY, _NOT_CAPTURED = "gpu_graph_id", "-1"
# ONNX Runtime has no captured graph 0 to choose by name.
_ids = itertools.count(1)


@dataclass(frozen=True)
class DeviceGraph:
    """One session whose first provider is not the CPU. See `Graph`."""

    name: str
    session: Any
    provider: OrtProvider

    def run(self, feeds: Mapping[str, Array]) -> dict[str, npt.NDArray[np.float32]]:
        """Run once. See `Graph.run`."""
        return OrtGraph(self.name, self.session).run(feeds, _run_options(self.provider, ""))

    def run_probe(self, probe: GraphProbe) -> None:
        """Run once on a probe's inputs."""
        binding = self.bind()
        for name, array in probe.inputs.items():
            binding.input(name, array)
        for output in self.session.get_outputs():
            source = probe.in_place.get(output.name)
            if source is None:
                binding.leave(output.name)
            else:
                binding.output(output.name, probe.inputs[source])
        binding.run()

    def bind(self, *, fixed: bool = False) -> DeviceBinding:
        """Start an empty binding. See `Graph.bind`."""
        return DeviceBinding(self.name, self.session, self.provider, fixed=fixed)


class DeviceBinding:
    """Bound arrays with their twins on the device. See `Binding`.

    Inputs are copied there before every run and outputs back after it. An array that is bound as
    both is updated in place: it is copied there once, and back when `sync` is called.
    """

    def __init__(self, name: str, session: Any, provider: OrtProvider, *, fixed: bool) -> None:
        self.captured = fixed and provider.captures
        self._capture = str(next(_ids)) if self.captured else ""
        self._name = name
        self._session = session
        self._provider = provider
        self._binding = session.io_binding()
        self._inputs: dict[int, tuple[Array, ort.OrtValue]] = {}
        self._outputs: dict[int, tuple[Array, ort.OrtValue]] = {}
        self._host: list[tuple[Array, ort.OrtValue]] = []
        self._pushed: set[int] = set()

    def input(self, name: str, array: Array) -> None:
        """Bind an input. See `Binding.input`."""
        if array.ndim == 0:
            # Kernels read single numbers on the host.
            value = ort.OrtValue.ortvalue_from_numpy(array)
            self._host.append((array, value))
        else:
            value = self._twin(array)
            self._inputs[id(array)] = (array, value)
        self._bind(self._binding.bind_ortvalue_input, name, value)

    def output(self, name: str, array: Array) -> None:
        """Bind an output. See `Binding.output`."""
        value = self._twin(array)
        self._outputs[id(array)] = (array, value)
        self._bind(self._binding.bind_ortvalue_output, name, value)

    def leave(self, name: str) -> None:
        """Let ONNX Runtime keep an output that nobody reads."""
        self._binding.bind_output(name)

    def run(self, *, give_back: bool = False) -> None:
        """Run once. See `Binding.run`; the device's memory is its provider's to keep."""
        options = _run_options(self._provider, self._capture)
        with self._typed():
            for key, (array, value) in self._inputs.items():
                if key not in self._pushed:
                    value.update_inplace(array)
                if key in self._outputs:
                    self._pushed.add(key)
            self._session.run_with_iobinding(self._binding, options)
            for key, (array, value) in self._outputs.items():
                if key not in self._inputs:
                    array[...] = value.numpy()

    def sync(self) -> None:
        """Bring back what was updated in place. See `Binding.sync`."""
        with self._typed():
            for key in self._pushed:
                array, value = self._outputs[key]
                array[...] = value.numpy()
        # Whoever asks for it may change it.
        self._pushed.clear()

    def __del__(self) -> None:
        # Captured runs hold device memory until they are released or the session ends.
        release = getattr(self._session, "release_captured_graph", None)
        if self._capture and release is not None:
            # One that never ran was not captured, and older versions cannot release at all.
            with contextlib.suppress(Exception):
                release(int(self._capture))

    def _twin(self, array: Array) -> ort.OrtValue:
        if not array.flags.c_contiguous:
            raise ValueError(f"{self._name}: only C-contiguous arrays can be bound")
        for known in (self._inputs, self._outputs):
            if id(array) in known:
                return known[id(array)][1]
        with self._typed():
            return device_array(array, self._provider)

    def _bind(self, bind: Any, name: str, value: ort.OrtValue) -> None:
        with self._typed():
            bind(name, value)

    @contextlib.contextmanager
    def _typed(self) -> Iterator[None]:
        """Whatever fails in here fails as a run does."""
        try:
            yield
        except Exception as error:  # the binding raises a dozen unrelated types
            raise run_failed(self._name, error) from error


def device_array(array: Array, provider: OrtProvider) -> ort.OrtValue:
    """Memory on a provider's device for an array's twin; what stands in it is not set."""
    return ort.OrtValue.ortvalue_from_shape_and_type(
        list(array.shape), array.dtype.type, provider.device, provider.device_id
    )


def _run_options(provider: OrtProvider, capture: str) -> ort.RunOptions | None:
    if not provider.captures:
        return None
    options = ort.RunOptions()
    options.add_run_config_entry(_CAPTURE_KEY, capture or _NOT_CAPTURED)
    return options
