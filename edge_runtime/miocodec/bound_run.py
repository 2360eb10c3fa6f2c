"""One run of a graph into arrays of ours, after which its scratch memory goes back."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from edge_runtime.backends.protocol import Graph

FloatArray = npt.NDArray[np.float32]


def bound_run(
    graph: Graph, inputs: Mapping[str, FloatArray], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, FloatArray]:
    """Run a graph.

    An output inside ONNX Runtime's arena would keep the whole piece that it lies in from being
    given back, so all outputs are bound.

    Args:
        graph: The graph.
        inputs: Arrays by name.
        shapes: Shape of every output by name.

    Raises:
        BackendError: The graph failed.
    """
    held = {name: np.ascontiguousarray(array, np.float32) for name, array in inputs.items()}
    outputs = {name: np.empty(shape, np.float32) for name, shape in shapes.items()}
    binding = graph.bind()
    for name, array in held.items():
        binding.input(name, array)
    for name, array in outputs.items():
        binding.output(name, array)
    binding.run(give_back=True)
    return outputs
