"""Builds an engine in a process of its own: a kernel that kills for memory kills that one."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from edge_runtime.backends.ort_provider import OrtProvider
from edge_runtime.errors import BackendError

# What CUDA's context and libraries take, or TensorRT's builder besides weights and workspace. Not
# measured.
BUILD_BASE_BYTES = 512 << 20
# Told graph file, providers and threads; raises BackendError.
BuildEngine = Callable[[Path, Sequence[OrtProvider], int], None]

# The worker imports from where this process does, wherever that is, and not from its own folder.
_START = """
import sys
sys.path[:] = sys.argv[1:]
from edge_runtime.engines.worker import main
sys.exit(main())
"""


def build_engine(graph: Path, providers: Sequence[OrtProvider], threads: int) -> None:
    """Make a session in another process, which leaves its engine in the cache folder.

    Args:
        graph: Graph file.
        providers: The first one builds; their options name the cache folder.
        threads: Threads of the session.

    Raises:
        BackendError: It failed or was killed.
    """
    request = {
        "graph": str(graph.resolve()),
        "threads": threads,
        "providers": [
            {"name": one.name, "ort_name": one.ort_name, "options": dict(one.options)}
            for one in providers
        ],
    }
    # Its errors go to a file: a pipe that nobody reads yet would stop it when full.
    with tempfile.TemporaryFile() as errors:
        done = subprocess.run(
            [sys.executable, "-c", _START, *sys.path],
            input=json.dumps(request).encode(),
            stdout=subprocess.DEVNULL,
            stderr=errors,
            check=False,
        )
        errors.seek(0)
        lines = errors.read().decode("utf-8", errors="replace").strip().splitlines()
    if done.returncode == 0:
        return
    if done.returncode == -signal.SIGKILL:
        raise BackendError(
            "the process that builds its engine was killed, most likely for want of memory",
            remedy="Add swap on NVMe, end other programs, or set a smaller workspace_mib.",
        )
    reason = lines[-1] if lines else f"exit status {done.returncode}"
    raise BackendError(f"its engine cannot be built: {reason.rstrip('.')}")
