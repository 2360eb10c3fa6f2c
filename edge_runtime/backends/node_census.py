"""Which provider ran which nodes of a session, from ONNX Runtime's own profile of one run."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnxruntime as ort

from edge_runtime.backends.ort_provider import CPU_PROVIDER
from edge_runtime.errors import BackendError

# Where the arithmetic is. Shapes and indices may well be computed on the CPU.
_HEAVY = frozenset({
    "Attention", "Conv", "ConvTranspose", "DynamicQuantizeMatMul", "FusedConv", "FusedGemm",
    "FusedMatMul", "Gemm", "GroupQueryAttention", "MatMul", "MatMulInteger",
    "MatMulIntegerToFloat", "MatMulNBits", "MultiHeadAttention", "NhwcFusedConv", "QLinearMatMul",
})  # fmt: skip


@dataclass(frozen=True)
class NodeCensus:
    """Nodes that ran.

    Attributes:
        nodes: Count by ONNX Runtime's provider name and operator.
    """

    nodes: Counter[tuple[str, str]] = field(default_factory=Counter)

    @staticmethod
    def read(profile: Path) -> NodeCensus:
        """Read a profile that ONNX Runtime wrote.

        Raises:
            BackendError: It is torn, as a full disk leaves it.
        """
        try:
            events = json.loads(profile.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise _no_profile(error) from error
        nodes: Counter[tuple[str, str]] = Counter()
        for event in events:
            details = event.get("args") or {}
            if event.get("cat") == "Node" and str(event.get("name", "")).endswith("_kernel_time"):
                nodes[details.get("provider", ""), details.get("op_name", "")] += 1
        return NodeCensus(nodes)

    def on(self, provider: str) -> int:
        """Nodes that a provider ran; one may stand for a whole compiled part of the graph."""
        return sum(count for (name, _), count in self.nodes.items() if name == provider)

    def heavy_on(self, provider: str) -> Counter[str]:
        """Products, convolutions and attention that a provider ran, by operator."""
        found: Counter[str] = Counter()
        for (name, operator), count in self.nodes.items():
            if name == provider and operator in _HEAVY:
                found[operator] += count
        return found

    @property
    def heavy_on_cpu(self) -> Counter[str]:
        """The same of the CPU."""
        return self.heavy_on(CPU_PROVIDER)

    def why_not_on(self, provider: str) -> str:
        """Why a graph does not really run on a provider; empty when it does."""
        if words := in_words(self.heavy_on_cpu):
            return f"ONNX Runtime leaves {words} of it to the CPU"
        if not self.on(provider):
            return "none of its nodes ran there"
        return ""


def in_words(operators: Counter[str]) -> str:
    """Such as ``3 Conv, 12 MatMul``."""
    return ", ".join(f"{count} {operator}" for operator, count in sorted(operators.items()))


@contextlib.contextmanager
def counted(
    options: ort.SessionOptions,
) -> Iterator[Callable[[Any], NodeCensus]]:
    """Have the session that is made with these options counted.

    Yields:
        A function that takes the session after its first run and says which provider ran what;
        the session goes on without being profiled.

    Raises:
        BackendError: There is no place for the profile.
    """
    try:
        scratch = tempfile.TemporaryDirectory(prefix="boardvoice-")
    except OSError as error:
        raise _no_profile(error) from error
    with scratch as folder:
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder) / "run")
        yield lambda session: NodeCensus.read(Path(session.end_profiling()))


def _no_profile(error: Exception) -> BackendError:
    return BackendError(
        f"Which provider ran what cannot be found out: {error}.",
        remedy="Free space in the temporary folder, or name another with TMPDIR.",
    )
