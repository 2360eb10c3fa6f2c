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

from edge_runtime.backends.ort import OrtBackend, save_prepared
from edge_runtime.memory import malloc
from edge_runtime.memory.limits import ProcessMemory
from edge_runtime.prepare.probe import GraphProbe

_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Prepare what the request names."""
    _end_with_parent()
    request = json.load(sys.stdin)
    malloc.limit_arenas(1)
    # Freed blocks go back at once: a graph must not be measured on what another one left.
    malloc.fix_thresholds(malloc.MMAP_THRESHOLD)
    out = Path(request["out"])
    family = importlib.import_module(f"edge_runtime.{request['family']}")
    probes: dict[str, GraphProbe] = family.probes(request["model"], request["kv_dtype"])
    for name, source in request["graphs"].items():
        target = out / f"{name}.onnx"
        save_prepared(Path(source), target, request["threads"])
        gc.collect()
        malloc.trim()
        cost = _measure(target, probes[name], request["threads"])
        sys.stdout.write(json.dumps({"graph": name, "cost": cost}) + "\n")
        sys.stdout.flush()
    return 0


def _end_with_parent() -> None:
    """Ask the kernel to kill this process with its parent: nobody would wait for its files."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _measure(graph: Path, probe: GraphProbe, threads: int) -> dict[str, int]:
    """Anonymous memory that loading and runs at the largest shapes take."""
    backend = OrtBackend(threads, spinning=False, prepared=graph.parent)
    before = ProcessMemory.read().anonymous
    loaded_graph = backend.load(graph)
    loaded = ProcessMemory.read().anonymous
    # The second run of a shape allocates by the plan that the first one made, in a piece of its
    # own beside what the first one took; from then on nothing is added.
    for _ in range(2):
        loaded_graph.run_probe(probe)
    ran = ProcessMemory.read().anonymous
    del loaded_graph
    gc.collect()
    malloc.trim()
    return {
        "session_bytes": max(loaded - before, 0),
        "workspace_bytes": max(ran - loaded, 0),
    }
