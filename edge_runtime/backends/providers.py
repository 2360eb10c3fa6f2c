"""Which execution providers of a profile work here: found by running known answers on them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

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
from edge_runtime.errors import BackendError

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
    cache: Path | None = None,
    open_: OpenSession = open_session,
    available: Callable[[], Sequence[str]] = ort.get_available_providers,
) -> tuple[ProviderCheck, ...]:
    """Try every provider of a profile, in its order.

    Args:
        profile: Names them, with their options.
        cache: Folder for what TensorRT builds on the way; None builds it anew each time.
        open_: Makes sessions.
        available: Providers of this build of ONNX Runtime.
    """
    return tuple(
        _check(provider, profile, cache, open_, available()) for provider in profile.providers
    )


def _check(
    entry: Provider,
    profile: Profile,
    cache: Path | None,
    open_: OpenSession,
    available: Sequence[str],
) -> ProviderCheck:
    provider = OrtProvider.of(entry).without_capture()
    check = ProviderCheck(provider.name, provider.ort_name)
    if provider.ort_name not in available:
        return replace(
            check,
            reason=f"this build of ONNX Runtime {ort.__version__} does not have it",
            remedy=_OTHER_BUILD,
        )
    if isinstance(entry, TensorRtProvider):
        options = tensorrt_options(entry, profile.flow, LAYERS.file, _MICRO_SHAPES, cache)
        provider = provider.with_options(options)
    reason = why_not_trusted(LAYERS, provider, open_)
    if reason:
        library = missing_library(provider.ort_name)
        if library:
            reason += f"; {library} is not found"
        return replace(check, reason=reason, remedy=_LIBRARIES)
    if isinstance(entry, (CpuProvider, TensorRtProvider)):
        # The one is tried with the cache's own type where that matters; the other never gets the
        # language model.
        return check
    return replace(check, attention=why_not_trusted(ATTENTION, provider, open_))


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
    return "" if provider.name == "cpu" else found.why_not_on(provider.ort_name)
