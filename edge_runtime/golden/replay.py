"""Runs a graph on golden inputs, through any back end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_runtime.backends.protocol import Graph
from edge_runtime.golden.deviation import Deviation
from edge_runtime.golden.golden_file import GoldenGraph, GoldenRun

Arrays = dict[str, npt.NDArray[Any]]


def replay(graph: Graph, golden: GoldenGraph) -> Iterator[tuple[GoldenRun, Deviation]]:
    """Run after run, with how far each is off.

    Raises:
        BackendError: A run failed.
    """
    carried = {
        name: array
        for group in golden.carried
        for (name, _), array in zip(group.names(), group.arrays(), strict=True)
    }
    for run in golden.runs:
        yield run, Deviation.of(run.outputs, _run(graph, golden, run, carried))


def _run(graph: Graph, golden: GoldenGraph, run: GoldenRun, carried: Arrays) -> Arrays:
    binding = graph.bind()
    # Named, so that they live until the run: what is bound stays the caller's.
    inputs: Mapping[str, npt.NDArray[Any]] = {
        name: np.ascontiguousarray(recipe.array()) for name, recipe in run.inputs.items()
    }
    outputs: Arrays = {
        name: np.zeros(entry.shape, np.float32) for name, entry in run.outputs.items()
    }
    following: Arrays = {}
    for name, array in (*inputs.items(), *carried.items()):
        binding.input(name, array)
    for name, array in outputs.items():
        binding.output(name, array)
    for group in golden.carried:
        for source, target in group.names():
            array = carried[source] if group.in_place else np.zeros_like(carried[source])
            binding.output(target, array)
            following[source] = array
    binding.run(give_back=True)
    binding.sync()
    carried.update(following)
    return outputs
