"""What golden vectors cost: computing them for a bundle, and running them as a self-test.

    python -m benchmarks.golden_vectors --bundle BUNDLE [--unprepared] [--profile NAME] [--json F]

Computing writes and removes a small file beside the bundle's graphs; the bundle stays as it is.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from pathlib import Path

from edge_runtime.bundle import Bundle
from edge_runtime.golden.selftest import selftest
from edge_runtime.loader import LoadOptions, open_device
from edge_runtime.memory import malloc
from edge_runtime.memory.limits import ProcessMemory
from edge_runtime.memory.watch import MemoryWatch
from edge_runtime.voxcpm2.spec import VoxCpm2Spec
from export.golden.golden_writer import compute_golden
from export.voxcpm2.golden_runs import golden_runs

MB = 1e6


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--profile")
    parser.add_argument("--unprepared", action="store_true", help="test without prepared files")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    malloc.limit_arenas(2)
    result = {"computing": computing(arguments.bundle)}
    malloc.fix_thresholds(malloc.MMAP_THRESHOLD)
    result["selftest"] = testing(
        arguments.bundle, arguments.profile, "never" if arguments.unprepared else None
    )
    print(json.dumps(result, indent=1))
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n", "utf-8")


def computing(folder: Path) -> dict[str, object]:
    """Seconds by graph, bytes of the file, and anonymous memory on top of what was there."""
    bundle = Bundle.open(folder, verify=False)
    spec = VoxCpm2Spec.model_validate(bundle.manifest.model)
    seconds: dict[str, float] = {}
    size = 0
    before = ProcessMemory.read().anonymous
    with MemoryWatch() as watch:
        for plan in golden_runs(bundle, spec):
            start = time.perf_counter()
            golden = compute_golden(bundle, [plan])
            name = f"{plan.graph} ({plan.kv_dtype} cache)" if plan.kv_dtype else plan.graph
            seconds[name] = round(time.perf_counter() - start, 2)
            size += len(golden.text())
    return {
        "seconds": seconds,
        "total_seconds": round(sum(seconds.values()), 2),
        "bytes": size,
        "peak_anonymous_mb": round((watch.peak - before) / MB, 1),
    }


def testing(folder: Path, profile: str | None, prepare: str | None) -> dict[str, object]:
    """Seconds, anonymous memory, and the results."""
    gc.collect()
    malloc.trim()
    before = ProcessMemory.read().anonymous
    with MemoryWatch() as watch:
        options = LoadOptions(profile=profile, verify=False, prepare=prepare)
        bundle, resources = open_device(folder, options)
        start = time.perf_counter()
        found = selftest(bundle, resources)
        seconds = time.perf_counter() - start
    return {
        "prepared": resources.prepared is not None,
        "seconds": round(seconds, 2),
        "peak_anonymous_mb": round((watch.peak - before) / MB, 1),
        **found.as_dict(),
    }


if __name__ == "__main__":
    main()
