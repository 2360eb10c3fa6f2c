"""A CPU session that passes for one of another provider, with the faults that a test wants."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from edge_runtime import loader
from edge_runtime.backends import device_graph
from edge_runtime.backends.live_session import open_session
from edge_runtime.backends.micro_model import LAYERS
from edge_runtime.backends.ort_provider import CPU_PROVIDER, OrtProvider
from edge_runtime.backends.placed import PlacedBackend
from edge_runtime.backends.protocol import Array
from edge_runtime.backends.providers import check_providers


@dataclass
class StandIn:
    """An `OpenSession`.

    Attributes:
        silent: Providers that are missing from their sessions.
        broken: What creating a session with a provider raises, by name.
        wrong: Providers whose numbers are off.
        on_cpu: Operators that are left to the CPU.
        on_second: Operators that the second provider runs, where there is one besides the CPU.
        run_error: What runs raise; empty for none.
        no_capture: Whether sessions with CUDA graphs are refused.
        opened: Every session asked for: file name, providers.
        runs: Run option that names a captured graph, of every run; None where there is none.
        released: Captured graphs that were released.
    """

    silent: set[str] = field(default_factory=set)
    broken: dict[str, str] = field(default_factory=dict)
    wrong: set[str] = field(default_factory=set)
    on_cpu: set[str] = field(default_factory=set)
    on_second: set[str] = field(default_factory=set)
    run_error: str = ""
    no_capture: bool = False
    opened: list[tuple[str, tuple[OrtProvider, ...]]] = field(default_factory=list)
    runs: list[tuple[str, str | None]] = field(default_factory=list)
    released: list[int] = field(default_factory=list)

    def __call__(
        self, path: Path, options: ort.SessionOptions, providers: Sequence[OrtProvider]
    ) -> Any:
        self.opened.append((path.name, tuple(providers)))
        first = providers[0]
        if first.name in self.broken:
            raise RuntimeError(self.broken[first.name])
        if self.no_capture and first.captures:
            raise RuntimeError("This session cannot use the graph capture feature.\nmore")
        session = open_session(path, options, [OrtProvider("cpu")])
        return session if first.name == "cpu" else _Session(session, self, path.stem, providers)

    def files_on(self, provider: str) -> set[str]:
        """Files that were opened with a provider first."""
        return {name for name, providers in self.opened if providers[0].name == provider}


class _Session:
    def __init__(
        self, inner: Any, faults: StandIn, name: str, providers: Sequence[OrtProvider]
    ) -> None:
        self._inner, self._faults, self._name = inner, faults, name
        self._providers = [p for p in providers if p.name not in faults.silent]

    def get_providers(self) -> list[str]:
        return [provider.ort_name for provider in self._providers]

    def get_outputs(self) -> Any:
        return self._inner.get_outputs()

    def io_binding(self) -> Any:
        return _Binding(self._inner.io_binding())

    def release_captured_graph(self, number: int) -> None:
        self._faults.released.append(number)

    def run(self, names: Any, feeds: Any, options: Any) -> Any:
        results = self._inner.run(names, feeds)
        return [result + self._off for result in results]

    def run_with_iobinding(self, binding: _Binding, options: Any) -> None:
        capture = options.get_run_config_entry("gpu_graph_id") if options is not None else None
        self._faults.runs.append((self._name, capture))
        if self._faults.run_error:
            raise RuntimeError(self._faults.run_error)
        self._inner.run_with_iobinding(binding.inner)
        if self._off:
            for value in binding.outputs:
                value.update_inplace(value.numpy() + np.asarray(self._off, value.numpy().dtype))

    def end_profiling(self) -> str:
        path = self._inner.end_profiling()
        events = json.loads(Path(path).read_text())
        for event in events:
            details = event.get("args") or {}
            if details.get("provider") == CPU_PROVIDER and (
                details.get("op_name") not in self._faults.on_cpu
            ):
                second = details.get("op_name") in self._faults.on_second
                details["provider"] = self._providers[int(second)].ort_name
        Path(path).write_text(json.dumps(events))
        return path

    @property
    def _off(self) -> float:
        return 0.5 if self._providers[0].name in self._faults.wrong else 0.0


class _Binding:
    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.outputs: list[Any] = []
        self.bind_ortvalue_input = inner.bind_ortvalue_input
        self.bind_output = inner.bind_output

    def bind_ortvalue_output(self, name: str, value: Any) -> None:
        self.outputs.append(value)
        self.inner.bind_ortvalue_output(name, value)


@dataclass
class FakeDevice:
    """Memory beside the arrays' own, which the CPU can read; takes `device_array`'s place.

    Attributes:
        made: Bytes of every allocation.
    """

    made: list[int] = field(default_factory=list)

    def __call__(self, array: Array, provider: OrtProvider) -> Any:
        assert (provider.device, provider.device_id) == ("cuda", 0)
        self.made.append(array.nbytes)
        return ort.OrtValue.ortvalue_from_shape_and_type(
            list(array.shape), array.dtype.type, "cpu", 0
        )


def use_fake_device(monkeypatch: Any) -> FakeDevice:
    """Put a fake device in place for a test."""
    fake = FakeDevice()
    monkeypatch.setattr(device_graph, "device_array", fake)
    return fake


EVERYWHERE = ("TensorrtExecutionProvider", "CUDAExecutionProvider", CPU_PROVIDER)


@dataclass
class Builds:
    """Takes the place of `build_engine`.

    Attributes:
        error: What a build raises, but the micro-model's.
        asked: Graph file and providers of every build.
    """

    error: Exception | None = None
    asked: list[tuple[str, tuple[OrtProvider, ...]]] = field(default_factory=list)

    def __call__(self, graph: Path, providers: Sequence[OrtProvider], threads: int) -> None:
        self.asked.append((graph.name, tuple(providers)))
        folder = Path(providers[0].options["trt_engine_cache_path"])
        (folder / "part.engine").write_bytes(b"engine")
        if self.error is not None and graph.name != LAYERS.file.name:
            raise self.error

    def of(self, name: str) -> list[tuple[OrtProvider, ...]]:
        """Providers of every build of one file."""
        return [providers for file, providers in self.asked if file == name]


def use_stand_in(monkeypatch: Any, stand_in: StandIn, builds: Builds | None = None) -> FakeDevice:
    """Have bundles loaded as if this machine had CUDA and TensorRT."""
    builds = builds or Builds()
    check = functools.partial(
        check_providers, open_=stand_in, build=builds, available=lambda: EVERYWHERE
    )
    placed = functools.partial(PlacedBackend, open=stand_in, build=builds)
    monkeypatch.setattr(loader, "check_providers", check)
    monkeypatch.setattr(loader, "PlacedBackend", placed)
    return use_fake_device(monkeypatch)
