"""One product whose weights lie in a cache or must come from memory. Prints a Markdown table.

    python benchmarks/weights_from_memory.py [--threads 2] [--formats int8 int8-128 int4-32 f32]

22 rows are the flow estimator's with guidance, 11 without, 1 the LM's step. A model's weights never
stay in a cache from one evaluation to the next; a probe's do.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

from edge_runtime.backends.ort import PROVIDER, session_options
from edge_runtime.bench.probe import product_model
from edge_runtime.bench.work import Product

INPUTS, OUTPUTS = 1024, 8192
# Together far beyond any cache.
WEIGHT_BYTES = 192 << 20
RUNS = 12


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 11, 22, 64, 256])
    parser.add_argument("--formats", nargs="+", default=["int8"])
    arguments = parser.parse_args()
    print(f"onnxruntime {ort.__version__}, {arguments.threads} threads, {INPUTS} -> {OUTPUTS}\n")
    print(
        "| format | rows | cached, ms | GFLOP/s | from memory, ms | GFLOP/s | GB/s "
        "| of cached speed |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for format_ in arguments.formats:
        for rows in arguments.rows:
            _measure(Product(format_, rows, INPUTS, OUTPUTS), arguments.threads)


def _measure(product: Product, threads: int) -> None:
    bits = 32 if product.format == "f32" else int(product.format[3])
    size = INPUTS * OUTPUTS * bits // 8
    cached, memory = (
        _best(product, layers, threads) for layers in (1, max(WEIGHT_BYTES // size, 2))
    )
    flop = 2 * product.rows * INPUTS * OUTPUTS
    print(
        f"| {product.format} | {product.rows} | {cached * 1e3:.3f} | {flop / cached / 1e9:.0f} | "
        f"{memory * 1e3:.3f} | {flop / memory / 1e9:.0f} | {size / memory / 1e9:.1f} | "
        f"{cached / memory:.0%} |",
        flush=True,
    )


def _best(product: Product, layers: int, threads: int) -> float:
    """Seconds per product, best run."""
    session = ort.InferenceSession(
        _model(product, layers).SerializeToString(),
        session_options(threads, spinning=True),
        providers=[PROVIDER],
    )
    value = np.random.default_rng(0).standard_normal((product.rows, INPUTS), np.float32)
    best = float("inf")
    for _ in range(RUNS):
        start = time.perf_counter()
        session.run(None, {"x": value})
        best = min(best, time.perf_counter() - start)
    return best / layers


def _model(product: Product, layers: int) -> onnx.ModelProto:
    """Products of one input with different weights; only a column of each is kept."""
    model = product_model(product, layers)
    graph = model.graph
    del graph.output[:]
    for name, value in (("start", 0), ("stop", 1), ("axis", 1)):
        graph.initializer.append(numpy_helper.from_array(np.array([value], np.int64), name))
    for index in range(layers):
        inputs = [f"y{index}", "start", "stop", "axis"]
        graph.node.append(helper.make_node("Slice", inputs, [f"z{index}"]))
        graph.output.append(helper.make_tensor_value_info(f"z{index}", 1, None))
    return model


if __name__ == "__main__":
    main()
