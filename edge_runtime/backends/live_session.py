"""Opens sessions so that ONNX Runtime cannot fall back to the CPU without a word."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import onnxruntime as ort

from edge_runtime.backends.ort_provider import CPU_PROVIDER, OrtProvider
from edge_runtime.errors import BackendError

# Such as "/src/file.cc:12 void onnxruntime::f(const T&) "; what follows is for people.
_SOURCE = re.compile(r"^/\S+\.(?:cc|cpp|h|cu|cuh):\d+ .*?\)\s+(?=[A-Z])")


class OpenSession(Protocol):
    """Makes a session; tests put others in its place."""

    def __call__(
        self, path: Path, options: ort.SessionOptions, providers: Sequence[OrtProvider]
    ) -> Any:
        """A session of a graph file with these providers in order."""
        ...


def open_session(
    path: Path, options: ort.SessionOptions, providers: Sequence[OrtProvider]
) -> ort.InferenceSession:
    """Open a session. See `OpenSession`."""
    with warnings.catch_warnings():
        # An unknown provider is only warned of; `why_not_live` makes a reason of it.
        warnings.simplefilter("ignore", UserWarning)
        return ort.InferenceSession(
            str(path),
            options,
            providers=[provider.entry for provider in providers],
            # By default the Python layer catches a provider's error, prints it to stdout and makes
            # a CPU session.
            enable_fallback=0,
        )


def first_line(error: Exception) -> str:
    """What an error of ONNX Runtime says, without its further lines and its place in the source."""
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return _SOURCE.sub("", line).rstrip(".")


def why_not_live(session: Any, provider: OrtProvider) -> str:
    """Whether a live session has a provider; ONNX Runtime drops one whose libraries do not load.

    Returns:
        What happened, as part of a sentence; empty when the provider is there.
    """
    found = session.get_providers()
    if provider.ort_name in found:
        return ""
    rest = ", ".join(name.removesuffix("ExecutionProvider") for name in found) or "nothing"
    return (
        f"ONNX Runtime {ort.__version__} made the session without it and without an error, on "
        f"{rest} alone"
    )


def live_session(
    open_: OpenSession,
    path: Path,
    options: ort.SessionOptions,
    providers: Sequence[OrtProvider],
) -> Any:
    """A session that has the first of the providers.

    Args:
        open_: Makes it.
        path: Graph file.
        options: Session options.
        providers: In order; the CPU is added as the last.

    Raises:
        BackendError: The provider raised, or is silently missing.
    """
    wanted = providers[0]
    listed = [*providers]
    if all(provider.ort_name != CPU_PROVIDER for provider in listed):
        listed.append(OrtProvider("cpu"))
    try:
        session = open_(path, options, listed)
    except Exception as error:  # the binding raises a dozen unrelated types
        raise BackendError(f"{path.name}: {first_line(error)}") from error
    missing = why_not_live(session, wanted)
    if missing:
        raise BackendError(f"{path.name}: {missing}")
    return session
