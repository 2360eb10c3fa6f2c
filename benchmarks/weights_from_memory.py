"""One int8 product whose weights lie in a cache or must come from memory. Prints a Markdown table.

    python benchmarks/weights_from_memory.py [--threads 2]

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

INPUTS, OUTPUTS = 1024, 8192
# 8 MiB each: together far beyond any cache.
LAYERS = 24
RUNS = 12


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 11, 22, 64, 256])
    arguments = parser.parse_args()
    print(f"onnxruntime {ort.__version__}, {arguments.threads} threads, {INPUTS} -> {OUTPUTS}\n")
    print("| rows | cached, ms | GFLOP/s | from memory, ms | GFLOP/s | GB/s | of cached speed |")
    print("|---|---|---|---|---|---|---|")
    for rows in arguments.rows:
        cached, memory = (_best(layers, rows, arguments.threads) for layers in (1, LAYERS))
        flop, size = 2 * rows * INPUTS * OUTPUTS, INPUTS * OUTPUTS
        print(
            f"| {rows} | {cached * 1e3:.3f} | {flop / cached / 1e9:.0f} | {memory * 1e3:.3f} | "
            f"{flop / memory / 1e9:.0f} | {size / memory / 1e9:.1f} | {cached / memory:.0%} |"
        )


def _best(layers: int, rows: int, threads: int) -> float:
    """Seconds per product, best run."""
    session = ort.InferenceSession(
        _model(layers).SerializeToString(),
        session_options(threads, spinning=True),
        providers=[PROVIDER],
    )
    value = np.random.default_rng(0).standard_normal((rows, INPUTS), np.float32)
    best = float("inf")
    for _ in range(RUNS):
        start = time.perf_counter()
        session.run(None, {"x": value})
        best = min(best, time.perf_counter() - start)
    return best / layers


def _model(layers: int) -> onnx.ModelProto:
    """Products of one input with different weights; only a column of each is kept."""
    rng = np.random.default_rng(0)
    nodes, weights = [], [numpy_helper.from_array(np.full(OUTPUTS, 0.01, np.float32), "scale")]
    for index in range(layers):
        matrix = rng.integers(-127, 127, (INPUTS, OUTPUTS)).astype(np.int8)
        weights.append(numpy_helper.from_array(matrix, f"w{index}"))
        inputs, output = ["x", f"w{index}", "scale"], [f"y{index}"]
        product = helper.make_node("DynamicQuantizeMatMul", inputs, output, domain="com.microsoft")
        column = helper.make_node("Slice", [*output, "start", "stop", "axis"], [f"z{index}"])
        nodes += [product, column]
    for name, value in (("start", 0), ("stop", 1), ("axis", 1)):
        weights.append(numpy_helper.from_array(np.array([value], np.int64), name))
    outputs = []
    for index in range(layers):
        outputs.append(helper.make_tensor_value_info(f"z{index}", 1, None))
    graph = helper.make_graph(
        nodes, "products", [helper.make_tensor_value_info("x", 1, ["rows", INPUTS])], outputs,
        weights,
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 19), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


if __name__ == "__main__":
    main()
