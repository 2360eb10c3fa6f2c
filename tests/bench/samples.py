"""Benchmark results for tests."""

from __future__ import annotations

from typing import Any

from edge_runtime.bench.machine import Machine
from edge_runtime.bench.results import BenchResult, Component, Probe, Reached, Setup, Stat

MACHINE = Machine(
    cpu="A CPU", arch="x86_64", cpus=2, memory_bytes=1 << 30, kernel="6.1",
    onnxruntime="1.32.0", python="3.11.0",
)  # fmt: skip
SETUP = Setup(
    boardvoice="0.1.0", family="voxcpm2", bundle="tiny", bundle_sha256="0" * 64, bundle_mb=1.0,
    weights="int8", synthetic=True, profile="generic-x86-64", threads=2, spinning=True,
    kv_dtype="f32", prepared=True, text="Hello.", reference=False, steps=10, cfg=2.0, patches=3,
    runs=2, prefix_rows=7, patch_seconds=0.16,
)  # fmt: skip


def stat(*runs: float) -> Stat:
    found = Stat.of([run] for run in runs)
    assert found is not None
    return found


def result(*patch_ms: float, **changes: Any) -> BenchResult:
    reached = Reached(
        gflop={"int8": 1.0}, weight_mb=10.0, gflops=10.0, gbs=0.1, limit="compute", limit_ms=50.0,
        fraction=0.5,
    )  # fmt: skip
    values: dict[str, Any] = {
        "taken": "2026-12-01",
        "machine": MACHINE,
        "setup": SETUP,
        "probe": Probe(threads=2, read_gbs=10.0, gflops={"f32": 100.0, "int8": 20.0}),
        "load_ms": 100.0,
        "first_audio_ms": stat(30.0),
        "patch_ms": stat(*(patch_ms or (100.0, 101.0))),
        "cpu_s_per_patch": stat(0.2),
        "rtf": stat(0.7),
        "peak_rss_anon_mb": 100.0,
        "kv_mb": 1.0,
        "components": {"flow": Component(per="patch", ms=stat(100.0), reached=reached)},
    }
    return BenchResult(**(values | changes))
