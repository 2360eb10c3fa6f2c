"""Time and error of one linear layer in every weight format, one thread. Prints a Markdown table.

    python benchmarks/linear_formats.py
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime as ort

from device_profiles.weight_formats import LayerKind, WeightFormat
from export.graph.builder import GraphBuilder
from export.graph.linear import LinearWeight, linear
from export.weights.plan import WeightPlan
from export.weights.weight_file import WeightFile

SHAPES = ((22, 1024, 4096), (1, 2048, 12288), (256, 2048, 6144))
SECONDS = 1.0


def main() -> None:
    """Measure and print."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    formats = list(WeightFormat)
    print(f"onnxruntime {ort.__version__}, 1 thread: best ms (relative error)\n")
    print("| rows x inputs -> outputs | " + " | ".join(each.value for each in formats) + " |")
    print("|---|" + "---|" * len(formats))
    for rows, inputs, outputs in SHAPES:
        rng = np.random.default_rng(0)
        weight = (rng.standard_normal((outputs, inputs)) / np.sqrt(inputs)).astype(np.float32)
        value = rng.standard_normal((1, rows, inputs)).astype(np.float32)
        exact = value @ weight.T
        cells = []
        for each in formats:
            with tempfile.TemporaryDirectory() as folder:
                session = _session(Path(folder), weight, each)
                best, result = _best(session, value)
            error = np.linalg.norm(result - exact) / np.linalg.norm(exact)
            cells.append(f"{best * 1e3:.2f} ({error:.1%})")
        print(f"| {rows} x {inputs} -> {outputs} | " + " | ".join(cells) + " |")


def _session(folder: Path, weight: np.ndarray, each: WeightFormat) -> ort.InferenceSession:
    plan = WeightPlan("f32", dict.fromkeys(LayerKind, each))
    layer = LinearWeight(*weight.shape, lambda start, stop: weight[start:stop])
    with WeightFile(folder / "layer.weights") as file:
        graph = GraphBuilder("layer", file, plan)
        value = graph.input("x", [1, "rows", weight.shape[1]])
        result = linear(graph, value, layer, LayerKind.FLOW_QKV)
        graph.output(result, "y", [1, "rows", weight.shape[0]])
        (folder / "layer.onnx").write_bytes(graph.build().SerializeToString())
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(str(folder / "layer.onnx"), options)


def _best(session: ort.InferenceSession, value: np.ndarray) -> tuple[float, np.ndarray]:
    result = session.run(None, {"x": value})[0]
    best, end = float("inf"), time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        start = time.perf_counter()
        session.run(None, {"x": value})
        best = min(best, time.perf_counter() - start)
    return best, result


if __name__ == "__main__":
    main()
