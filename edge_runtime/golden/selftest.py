"""Runs a bundle's golden vectors on this device, as it would speak."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from edge_runtime.backends.device_graph import DeviceGraph
from edge_runtime.backends.ort import OrtGraph
from edge_runtime.backends.protocol import Graph
from edge_runtime.bundle import Bundle
from edge_runtime.errors import BoardvoiceError, BundleError, MemoryBudgetError
from edge_runtime.golden.deviation import Deviation
from edge_runtime.golden.golden_file import GoldenFile, GoldenGraph
from edge_runtime.golden.replay import replay
from edge_runtime.memory import malloc
from edge_runtime.npu.failover import FailoverGraph
from edge_runtime.resources import Resources

# Told each result as it is found.
OnResult = Callable[["ComponentResult"], None]


@dataclass(frozen=True)
class ComponentResult:
    """What came of one component.

    Attributes:
        component: Its name.
        graph: The graph that was run.
        provider: What ran it; empty where it could not be loaded.
        deviation: Its error; None where it did not run.
        least_snr_db: What the bundle asks for.
        reason: Why it did not run.
        short_of_memory: Whether that was for want of memory.
    """

    component: str
    graph: str
    provider: str
    deviation: Deviation | None
    least_snr_db: float
    reason: str = ""
    short_of_memory: bool = False

    @property
    def passed(self) -> bool:
        """Whether it computes what the exporter computed."""
        return self.deviation is not None and self.deviation.snr_db >= self.least_snr_db

    @property
    def words(self) -> str:
        """What was found, or why nothing was."""
        if self.reason or self.deviation is None:
            return self.reason or "it did not run"
        return f"{self.deviation.snr_db:.1f} dB, at least {self.least_snr_db:.1f} is asked for"

    def as_dict(self) -> dict[str, Any]:
        """For JSON, which has no infinity: an exact result has an SNR of null."""
        found = self.deviation
        known = found is not None and math.isfinite(found.snr_db)
        return {
            "component": self.component,
            "graph": self.graph,
            "provider": self.provider,
            "passed": self.passed,
            "exact": found is not None and found.exact,
            "snr_db": round(found.snr_db, 2) if found is not None and known else None,
            "least_snr_db": self.least_snr_db,
            "max_error": found.max_error if found is not None and found.finite else None,
            "reason": self.reason,
        }


@dataclass(frozen=True)
class SelfTest:
    """The whole outcome.

    Attributes:
        computed_by: What computed the golden vectors.
        kv_dtype: KV cache that was used.
        results: By component.
        untested: Why graphs of this device were not tested, by graph.
    """

    computed_by: str
    kv_dtype: str
    results: tuple[ComponentResult, ...]
    untested: dict[str, str]

    @property
    def passed(self) -> bool:
        """Whether every component passed."""
        return all(result.passed for result in self.results)

    @property
    def failed(self) -> tuple[ComponentResult, ...]:
        """Those that did not."""
        return tuple(result for result in self.results if not result.passed)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "passed": self.passed,
            "computed_by": self.computed_by,
            "kv_dtype": self.kv_dtype,
            "components": [result.as_dict() for result in self.results],
            "untested": self.untested,
        }


def selftest(bundle: Bundle, resources: Resources, on_result: OnResult | None = None) -> SelfTest:
    """Run every component of a bundle on its golden inputs, one graph in memory at a time.

    Args:
        bundle: The bundle.
        resources: The device, as `open_device` gives it.
        on_result: Told each result as it is found.

    Raises:
        BundleError: The bundle has no golden vectors, or they are torn.
    """
    golden = GoldenFile.of(bundle)
    if golden is None:
        raise BundleError(
            f"{bundle.folder} has no golden vectors: it was exported before there were any. "
            "Nothing was tested.",
            remedy="Export it again to be able to test it; it speaks as it is.",
        )
    kv_dtype = resources.profile.kv.dtype
    files = bundle.graphs(kv_dtype)
    results: list[ComponentResult] = []
    for entry in golden.graphs:
        if entry.kv_dtype not in (None, kv_dtype) or entry.graph not in files:
            continue
        for result in _test(bundle, resources, entry, files[entry.graph]):
            results.append(result)
            if on_result is not None:
                on_result(result)
        malloc.trim()
    tested = {result.graph for result in results}
    untested = {
        name: f"The bundle has no golden vectors for {file}."
        for name, file in files.items()
        if name not in tested
    }
    return SelfTest(golden.computed_by, kv_dtype, tuple(results), untested)


def _test(
    bundle: Bundle, resources: Resources, golden: GoldenGraph, file: str
) -> list[ComponentResult]:
    results: list[ComponentResult] = []
    provider = ""
    try:
        graph = resources.load(bundle, file)
        provider = provider_of(graph)
        for run, deviation in replay(graph, golden):
            reason = "" if deviation.finite else "It gives values that are not finite."
            # The CPU may have taken over meanwhile.
            provider, least = provider_of(graph), run.least_snr_db
            if isinstance(graph, FailoverGraph) and graph.record.in_use:
                # f16 instead of the CPU's arithmetic; the load asked for no more.
                least = min(least, resources.profile.flow.npu_least_snr_db)
            results.append(
                ComponentResult(run.component, golden.graph, provider, deviation, least, reason)
            )
    except BoardvoiceError as error:
        # One that cannot run says nothing about the others.
        results += [
            ComponentResult(
                run.component,
                golden.graph,
                provider,
                None,
                run.least_snr_db,
                str(error),
                short_of_memory=isinstance(error, MemoryBudgetError),
            )
            for run in golden.runs[len(results) :]
        ]
    return results


def provider_of(graph: Graph) -> str:
    """What really runs a graph: the first provider that its live session has."""
    if isinstance(graph, (OrtGraph, DeviceGraph)):
        return str(graph.session.get_providers()[0])
    if isinstance(graph, FailoverGraph):
        return graph.provider if graph.record.in_use else provider_of(graph.cpu())
    return type(graph).__name__
