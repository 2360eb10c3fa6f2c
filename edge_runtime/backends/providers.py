"""Which execution providers of a profile work here: found by running known answers on them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import onnxruntime as ort

from device_profiles.providers import CpuProvider, Provider, TensorRtProvider
from device_profiles.schema import Profile
from edge_runtime.backends.device_graph import DeviceGraph
from edge_runtime.backends.live_session import OpenSession, live_session, open_session
from edge_runtime.backends.micro_model import (
    ATTENTION,
    CHANNELS,
    FRAMES,
    LAYERS,
    MicroModel,
    why_wrong,
)
from edge_runtime.backends.node_census import counted
from edge_runtime.backends.ort import OrtGraph, session_options
from edge_runtime.backends.ort_provider import OrtProvider
from edge_runtime.backends.protocol import Graph
from edge_runtime.backends.provider_library import missing_library
from edge_runtime.backends.tensorrt_options import ShapeRange, tensorrt_options
from edge_runtime.engines.builder import BUILD_BASE_BYTES, BuildEngine, build_engine
from edge_runtime.engines.cache import EngineCache
from edge_runtime.errors import BackendError, BoardvoiceError
from edge_runtime.memory.guard import MemoryGuard

_LOG = logging.getLogger("boardvoice")
_MICRO_SHAPES = {
    "audio": ShapeRange((1, CHANNELS, 1), (1, CHANNELS, FRAMES), (1, CHANNELS, FRAMES))
}
_OTHER_BUILD = (
    "Install the build of ONNX Runtime that belongs to this board's CUDA, and uninstall "
    "'onnxruntime' first: a CPU build beside it wins without a word."
)
_LIBRARIES = (
    "See whether the libraries of CUDA, cuDNN and TensorRT have the versions that this build of "
    "ONNX Runtime wants (docs/providers.md)."
)


@dataclass(frozen=True)
class ProviderCheck:
    """What was found out about one provider.

    Attributes:
        name: The profile's word, such as ``cuda``.
        ort_name: ONNX Runtime's name.
        reason: Why it is not used, as a part of a sentence; empty when its numbers are right.
        remedy: What to do about that, as a sentence.
        attention: Why the language model does not run there although the rest may; empty when it
            can.
    """

    name: str
    ort_name: str
    reason: str = ""
    remedy: str = ""
    attention: str = ""

    @property
    def passed(self) -> bool:
        """Whether it is used."""
        return not self.reason


def check_providers(
    profile: Profile,
    *,
    engines: EngineCache | None = None,
    guard: MemoryGuard | None = None,
    open_: OpenSession = open_session,
    build: BuildEngine = build_engine,
    available: Callable[[], Sequence[str]] = ort.get_available_providers,
) -> tuple[ProviderCheck, ...]:
    """Try every provider of a profile, in its order.

    Args:
        profile: Names them, with their options.
        engines: Keeps the micro-model's TensorRT engine; None builds it anew, in this process.
        guard: Asked before a device is started; by default one without limits of the user's.
        open_: Makes sessions.
        build: Builds engines.
        available: Providers of this build of ONNX Runtime.
    """
    tools = _Tools(engines, guard or MemoryGuard(), open_, build, available())
    return tuple(_check(provider, profile, tools) for provider in profile.providers)


@dataclass(frozen=True)
class _Tools:
    engines: EngineCache | None
    guard: MemoryGuard
    open: OpenSession
    build: BuildEngine
    available: Sequence[str]


def _check(entry: Provider, profile: Profile, tools: _Tools) -> ProviderCheck:
    provider = OrtProvider.of(entry).without_capture()
    check = ProviderCheck(provider.name, provider.ort_name)
    if provider.ort_name not in tools.available:
        return replace(
            check,
            reason=f"this build of ONNX Runtime {ort.__version__} does not have it",
            remedy=_OTHER_BUILD,
        )
    try:
        if provider.device != "cpu":
            tools.guard.reserve(BUILD_BASE_BYTES, f"Starting {provider.name}")
        if isinstance(entry, TensorRtProvider):
            provider = _with_engine(entry, profile, provider, tools)
        reason = why_not_trusted(LAYERS, provider, tools.open)
    except BoardvoiceError as error:
        reason = error.message.rpartition(".onnx: ")[2].rstrip(".")
    if reason:
        library = missing_library(provider.ort_name)
        if library:
            reason += f"; {library} is not found"
        return replace(check, reason=reason, remedy=_LIBRARIES)
    if isinstance(entry, (CpuProvider, TensorRtProvider)):
        # The one is tried with the cache's own type where that matters; the other never gets the
        # language model.
        return check
    return replace(check, attention=why_not_trusted(ATTENTION, provider, tools.open))


def _with_engine(
    entry: TensorRtProvider, profile: Profile, provider: OrtProvider, tools: _Tools
) -> OrtProvider:
    """TensorRT with the micro-model's engine, built by another process unless it is there."""
    folder = None
    if tools.engines is not None and entry.engine_cache:
        plain = tensorrt_options(entry, profile.flow, LAYERS.file, _MICRO_SHAPES, None)
        folder = tools.engines.micro({**provider.options, **plain})
    options = tensorrt_options(entry, profile.flow, LAYERS.file, _MICRO_SHAPES, folder)
    provider = provider.with_options(options)
    if tools.engines is not None and folder is not None and not tools.engines.is_built(folder):
        tools.engines.make(folder, lambda: tools.build(LAYERS.file, [provider], 1))
    return provider


def why_not_trusted(
    model: MicroModel, provider: OrtProvider, open_: OpenSession = open_session
) -> str:
    """Why a provider cannot be trusted with what a micro-model has.

    Returns:
        Part of a sentence: it cannot be made, is silently missing, leaves products to the CPU,
        fails in the run, or gives wrong numbers. Empty if none of that.
    """
    options = session_options(1, spinning=False)
    try:
        if provider.name == "cpu":
            # Its nodes have nowhere else to go: nothing is written to count them.
            session = live_session(open_, model.file, options, [provider])
            return why_wrong(model, OrtGraph(model.file.stem, session))
        with counted(options) as census:
            session = live_session(open_, model.file, options, [provider])
            graph: Graph
            if provider.device == "cpu":
                graph = OrtGraph(model.file.stem, session)
            else:
                graph = DeviceGraph(model.file.stem, session, provider)
            wrong = why_wrong(model, graph)
            found = census(session)
    except BackendError as error:
        return error.message.removeprefix(f"{model.file.name}: ")
    _LOG.debug("%s of %s: %s", model.what, provider.name, dict(found.nodes))
    if wrong:
        return wrong
    return found.why_not_on(provider.ort_name)
