"""Builds a small graph with `GraphBuilder` and runs it in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime as ort

from device_profiles.weight_formats import PlanName
from export.checkpoint.tensor_source import LazyTensor
from export.graph.builder import GraphBuilder
from export.graph.linear import LinearWeight
from export.graph.parameters import Parameters
from export.weights.plan import WeightPlan
from export.weights.weight_file import WeightFile


@dataclass(frozen=True)
class HeldTensor:
    """A tensor that is there already."""

    name: str
    values: np.ndarray
    dtype: str = "f32"
    file: Path = Path("held.safetensors")

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    def read(self) -> np.ndarray:
        return self.values.astype(np.float32)

    def rows(self, start: int, stop: int) -> np.ndarray:
        return self.values[start:stop].astype(np.float32)


def parameters(arrays: Mapping[str, np.ndarray]) -> Parameters:
    held: dict[str, LazyTensor] = {name: HeldTensor(name, array) for name, array in arrays.items()}
    return Parameters(held)


def weight_of(rows: np.ndarray) -> LinearWeight:
    return LinearWeight(rows.shape[0], rows.shape[1], lambda start, stop: rows[start:stop])


def save_graph(
    folder: Path, build: Callable[[GraphBuilder], object], plan: PlanName | WeightPlan = "f32"
) -> Path:
    """Build a graph into a folder; ``build`` declares its inputs and outputs."""
    folder.mkdir(parents=True, exist_ok=True)
    with WeightFile(folder / "graph.weights") as weights:
        formats = plan if isinstance(plan, WeightPlan) else WeightPlan.named(plan)
        graph = GraphBuilder("graph", weights, formats)
        build(graph)
    (folder / "graph.onnx").write_bytes(graph.build().SerializeToString())
    return folder / "graph.onnx"


def session(path: Path) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def run(path: Path, **feeds: np.ndarray) -> dict[str, np.ndarray]:
    found = session(path)
    names = [output.name for output in found.get_outputs()]
    return dict(zip(names, found.run(names, feeds), strict=True))
