"""The process that prepares a bundle: its memory goes with it when it ends.

Reads one JSON request on stdin, writes one JSON line per finished graph on stdout.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import signal
import sys
from pathlib import Path
from typing import Any

from edge_runtime.backends.ort import OrtBackend, save_prepared
from edge_runtime.backends.session_settings import SessionSettings
from edge_runtime.memory import malloc
from edge_runtime.memory.limits import ProcessMemory
from edge_runtime.prepare.probe import GraphProbe

_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Prepare what the request names."""
    end_with_parent()
    request = json.load(sys.stdin)
    malloc.limit_arenas(1)
    # Freed blocks go back at once: a graph must not be measured on what another one left.
    malloc.fix_thresholds(malloc.MMAP_THRESHOLD)
    out = Path(request["out"])
    settings = SessionSettings(**request["settings"])
    family = importlib.import_module(f"edge_runtime.{request['family']}")
    probes: dict[str, tuple[GraphProbe, ...]] = family.probes(request["model"], request["kv_dtype"])
    for name, source in request["graphs"].items():
        target = out / f"{name}.onnx"
        save_prepared(Path(source), target, request["threads"], settings)
        gc.collect()
        malloc.trim()
        cost = _measure(target, probes[name], request["threads"], settings)
        sys.stdout.write(json.dumps({"graph": name, "cost": cost}) + "\n")
        sys.stdout.flush()
    return 0


def end_with_parent() -> None:
    """Ask the kernel to kill this process with its parent: nobody would wait for its files."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _measure(
    graph: Path, probes: tuple[GraphProbe, ...], threads: int, settings: SessionSettings
) -> dict[str, Any]:
    """Anonymous memory that loading takes, and runs of each size on top."""
    session = 0
    found: dict[int, list[tuple[int, int]]] = {}
    for probe in probes:
        # A session of its own: what another size left would serve this one as well.
        loaded, ran = _measure_run(graph, probe, threads, settings)
        session = max(session, loaded)
        found.setdefault(probe.size, []).append((probe.cached, ran))
    workspaces, most = [], 0
    for size, costs in sorted(found.items()):
        (cached, least), (further, more) = min(costs), max(costs)
        # Figures of small runs are within a page or two of each other.
        most = max(most, least)
        slope = max(more - most, 0) / max(further - cached, 1)
        workspaces.append({"size": size, "bytes": most, "cached": cached, "per_cached": slope})
    return {"session_bytes": session, "workspaces": workspaces}


def _measure_run(
    graph: Path, probe: GraphProbe, threads: int, settings: SessionSettings
) -> tuple[int, int]:
    backend = OrtBackend(threads, spinning=False, prepared=graph.parent, settings=settings)
    gc.collect()
    malloc.trim()
    before = ProcessMemory.read().anonymous
    loaded_graph = backend.load(graph)
    malloc.trim()
    loaded = ProcessMemory.read().anonymous
    # The second run of a shape may take more than the first; from then on nothing is added.
    for _ in range(2):
        loaded_graph.run_probe(probe)
    ran = ProcessMemory.read().anonymous
    return max(loaded - before, 0), max(ran - loaded, 0)
