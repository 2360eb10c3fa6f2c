"""What weight formats cost in time: LM step, a patch's flow, patch encoder. Prints Markdown.

    python benchmarks/format_speed.py --work FOLDER --exact F32_BUNDLE --bundles int8=BUNDLE ... \\
        --lm int8 int4 --flow int8 '*=int8,flow.down=other' --patch-encoder int8

Rows are models of mixed formats, as in `format_accuracy.py`; those of one graph are run in turn.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
from format_accuracy import EXACT, Bench, Mix
from teacher_forced import encoded, kv_shape, solved

from edge_runtime.bundle import Bundle
from edge_runtime.kv_cache import KVCache
from edge_runtime.voxcpm2.lm import LanguageModel

PREFIX_ROWS = 64
ROUNDS = 6
RUNS = {"lm": 5, "flow": 3, "patch_encoder": 10}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--exact", type=Path, required=True, help="f32 bundle")
    parser.add_argument("--bundles", nargs="+", required=True, metavar="NAME=BUNDLE")
    parser.add_argument("--threads", type=int, default=2)
    for graph in RUNS:
        parser.add_argument(f"--{graph.replace('_', '-')}", nargs="*", default=[], metavar="ROW")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    named = {EXACT: arguments.exact} | dict(text.split("=", 1) for text in arguments.bundles)
    bundles = {name: Bundle.open(path, verify=False) for name, path in named.items()}
    bench = Bench(bundles, arguments.work, arguments.threads)
    print(f"onnxruntime {onnxruntime.__version__}, {arguments.threads} threads\n")
    print(
        "| graph | formats | ms, median | ms, least | CPU-ms |\n|---|---|---|---|---|", flush=True
    )
    for graph, make in (("lm", _lm), ("flow", _flow), ("patch_encoder", _patch_encoder)):
        runs = {row: make(bench, Mix.of(row)) for row in getattr(arguments, graph)}
        _measure(graph, runs)
        del runs
        gc.collect()


def _measure(graph: str, runs: dict[str, Callable[[], object]]) -> None:
    wall: dict[str, list[float]] = {row: [] for row in runs}
    cpu: dict[str, list[float]] = {row: [] for row in runs}
    for run in runs.values():
        run()
    for _ in range(ROUNDS):
        for row, run in runs.items():
            for _ in range(RUNS[graph]):
                start, spent = time.perf_counter(), time.process_time()
                run()
                wall[row].append(1e3 * (time.perf_counter() - start))
                cpu[row].append(1e3 * (time.process_time() - spent))
    for row in runs:
        cells = (statistics.median(wall[row]), min(wall[row]), statistics.median(cpu[row]))
        print(f"| {graph} | `{row}` | " + " | ".join(f"{each:.1f}" for each in cells) + " |")


def _lm(bench: Bench, mix: Mix) -> Callable[[], object]:
    graph, _ = bench.graph("lm", mix)
    random = np.random.default_rng(0)
    lm = LanguageModel(graph, bench.spec, KVCache(kv_shape(bench.spec, "f32"), 2 * PREFIX_ROWS))
    rows = random.standard_normal((PREFIX_ROWS, bench.spec.hidden), np.float32)
    lm.prefill(rows, np.ones(PREFIX_ROWS, np.float32))

    def step() -> None:
        lm.cache.rows = PREFIX_ROWS
        lm.step(rows[None, :1])

    return step


def _flow(bench: Bench, mix: Mix) -> Callable[[], object]:
    solver = bench.solver(bench.graph("flow", mix)[0])
    random, spec = np.random.default_rng(0), bench.spec
    mu = random.standard_normal((1, 2, spec.flow.hidden), np.float32)
    before = random.standard_normal((spec.patch_size, spec.latent_dim), np.float32)
    noise = random.standard_normal((spec.latent_dim, spec.patch_size), np.float32)
    return lambda: solved(solver, mu, before, noise)


def _patch_encoder(bench: Bench, mix: Mix) -> Callable[[], object]:
    graph, _ = bench.graph("patch_encoder", mix)
    size = (bench.spec.patch_size, bench.spec.latent_dim)
    patch = np.random.default_rng(0).standard_normal(size, np.float32)
    return lambda: encoded(graph, patch)


if __name__ == "__main__":
    main()
