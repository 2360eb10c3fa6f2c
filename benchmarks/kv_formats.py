"""What the KV cache's type costs in accuracy and time. Prints a Markdown table.

    python benchmarks/kv_formats.py --bundle BUNDLE --work FOLDER [--formats f16 int8:1.25 ...]

Texts that the int8 ranges were not measured with are spoken over an f32 cache; each other cache is
then fed the same rows, and the flow solver the same noise and patches before. Signal-to-noise
ratios are against the f32 cache. --work must be on the bundle's file system: the LM's weights are
linked into it. It keeps the measured ranges; name another one for another bundle.
"""

from __future__ import annotations

import argparse
import gc
import os
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from teacher_forced import TEXTS, decibels, kv_shape, record, replay

from edge_runtime.backends.ort import OrtBackend
from edge_runtime.backends.protocol import Graph
from edge_runtime.bundle import Bundle
from edge_runtime.kv_cache import KVCache, KVShape
from edge_runtime.memory.watch import MemoryWatch
from edge_runtime.voxcpm2.flow import FlowSolver
from edge_runtime.voxcpm2.lm import PREFILL_ROWS, LanguageModel
from edge_runtime.voxcpm2.model import read_spec
from edge_runtime.voxcpm2.prompt import PrefixBuilder
from edge_runtime.voxcpm2.spec import VoxCpm2Spec
from export.graph.f16_cache import with_f16_cache
from export.graph.int8_cache import KVRanges, with_int8_cache
from export.voxcpm2.int8_kv import measure_ranges

DEEP_ROWS = 768
STEP_RUNS = 20


class Bench:
    """A bundle's graphs and one variant of its LM at a time."""

    def __init__(self, bundle: Bundle, work: Path, threads: int) -> None:
        self.spec: VoxCpm2Spec = read_spec(bundle)
        self._bundle, self._work = bundle, work
        self._backend = OrtBackend(threads, spinning=True)
        self.model = onnx.load(str(bundle.path(self.spec.graphs["lm"])), load_external_data=False)
        self.ranges = self._measured()
        load = {
            name: self._backend.load(bundle.path(self.spec.graphs[name]))
            for name in ("patch_encoder", "flow", "flow_time", "flow_condition")
        }
        self.encoder = load["patch_encoder"]
        self.prefixes = PrefixBuilder(bundle, self.spec, self.encoder)
        self.solver = FlowSolver(
            self.spec, load["flow"], load["flow_time"], load["flow_condition"], steps=10, cfg=2.0
        )
        weights = bundle.folder / "graphs/lm.weights"
        if weights.exists() and not (work / weights.name).exists():
            os.link(weights, work / weights.name)

    def lm(self, kind: str) -> tuple[Graph, KVShape]:
        """Load the LM over ``f32``, ``f16`` or ``int8:MARGIN``."""
        dtype, _, margin = kind.partition(":")
        model = self.model
        if dtype == "f16":
            model = with_f16_cache(model)
        elif dtype == "int8":
            model = with_int8_cache(model, self.ranges, float(margin))
        file = self._work / "lm.onnx"
        file.write_bytes(model.SerializeToString())
        return self._backend.load(file), kv_shape(self.spec, dtype)

    def _measured(self) -> KVRanges:
        ranges, file = KVRanges.of(self.model), self._work / "ranges.npz"
        if file.exists():
            with np.load(file) as saved:
                ranges.largest = {name: saved[name] for name in saved.files}
            return ranges
        start = time.perf_counter()
        with MemoryWatch() as watch:
            ranges = measure_ranges(self._bundle, self.spec, self.model)
        print(
            f"ranges measured over {ranges.rows} rows in {time.perf_counter() - start:.0f} s, "
            f"RssAnon peak {watch.peak / 1e9:.2f} GB\n"
        )
        np.savez(file, **ranges.largest)
        gc.collect()
        return ranges


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--patches", type=int, default=16)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--formats", nargs="+", default=["f32", "f16", "int8:1.0", "int8:1.25", "int8:1.5"]
    )
    parser.add_argument("--time", action="store_true", help="time the LM instead")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    bundle = Bundle.open(arguments.bundle, verify=False)
    bench = Bench(bundle, arguments.work, arguments.threads)
    print(
        f"onnxruntime {onnxruntime.__version__}, {arguments.threads} threads, "
        f"{bundle.manifest.weights}, {bench.spec.kv.layers} layers, head {bench.spec.kv.head_size}"
    )
    if arguments.time:
        _times(bench, arguments.formats)
    else:
        _ratios(bench, arguments.formats, arguments.patches)


def _ratios(bench: Bench, formats: Sequence[str], patches: int) -> None:
    graph, _ = bench.lm("f32")
    spoken = []
    for text in TEXTS:
        reference = np.stack(spoken[-1].patches[1:]) if spoken else None
        spoken.append(
            record(
                bench.spec, graph, bench.encoder, bench.solver, bench.prefixes, text, reference,
                patches,
            )
        )  # fmt: skip
    del graph
    gc.collect()
    print(
        f"{len(TEXTS)} texts, {patches} patches each, "
        f"{sum(len(piece[0]) for one in spoken for piece in one.pieces)} prefix rows\n"
    )
    print("| cache | bytes per row | mu, dB | stop logits, dB | latents, dB | clipped |")
    print("|---|---|---|---|---|---|")
    for kind in formats:
        graph, shape = bench.lm(kind)
        clipped, pairs = 0.0, {"mu": [], "stop": [], "latents": []}
        for one in spoken:
            found = replay(bench.spec, graph, shape, bench.solver, one)
            clipped = max(clipped, found.clipped)
            pairs["mu"].append((one.mu, found.mu))
            pairs["stop"].append((one.stop, found.stop))
            pairs["latents"].append((one.patches[1:], found.patches))
        cells = " | ".join(_shown(decibels(pairs[name])) for name in pairs)
        print(f"| {kind} | {shape.row_bytes} | {cells} | {clipped:.3%} |", flush=True)
        del graph
        gc.collect()


def _shown(ratio: float) -> str:
    return "equal" if np.isinf(ratio) else f"{ratio:.1f}"


def _times(bench: Bench, formats: Sequence[str]) -> None:
    rows = PREFILL_ROWS
    deep = min(DEEP_ROWS, bench.spec.kv.max_rows - rows)
    random = np.random.default_rng(0)
    piece = random.standard_normal((rows, bench.spec.hidden), np.float32), np.ones(rows, np.float32)
    print(
        f"\n| cache | prefill {rows} rows, ms | same after {deep} rows | step after {deep} rows |"
    )
    print("|---|---|---|---|")
    for kind in formats:
        graph, shape = bench.lm(kind)
        lm = LanguageModel(graph, bench.spec, KVCache(shape, deep + rows))
        lm.prefill(*piece)
        cells = [_best(lm, 0, lambda lm=lm: lm.prefill(*piece), 2)]
        lm.cache.rows = 0
        while lm.cache.rows < deep:
            lm.prefill(*piece)
        cells.append(_best(lm, deep, lambda lm=lm: lm.prefill(*piece), 2))
        row = piece[0][None, :1]
        cells.append(_best(lm, deep, lambda lm=lm, row=row: lm.step(row), STEP_RUNS))
        print(f"| {kind} | " + " | ".join(f"{cell * 1e3:.1f}" for cell in cells) + " |", flush=True)
        del graph, lm
        gc.collect()


def _best(lm: LanguageModel, rows: int, run: object, times: int) -> float:
    best = float("inf")
    for _ in range(times):
        lm.cache.rows = rows
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best


if __name__ == "__main__":
    main()
