"""Computes golden vectors with the graphs that were just written."""

from __future__ import annotations

import math
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort

from device_profiles.catalog import usable_cpus
from edge_runtime.backends.ort import PROVIDER, session_options
from edge_runtime.bundle import Bundle
from edge_runtime.errors import CheckpointError
from edge_runtime.golden.deviation import Deviation
from edge_runtime.golden.golden_file import (
    Carried,
    GoldenFile,
    GoldenGraph,
    GoldenOutput,
    GoldenRun,
    InputRecipe,
)
from edge_runtime.kv_cache import KVType
from export.golden.pieces import Piece, pieces

# Of weights that are loaded at once. Sessions hold copies of them.
PIECE_BYTES = 64 << 20
# A device may be this much further off than rounding the inputs to f16 makes the exporter itself.
_MARGIN_DB = 10.0
# Never asked for more than this: other kernels sum in other orders. Nor for less.
_MOST_DB, _LEAST_DB = 60.0, 6.0

Arrays = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class PlannedRun:
    """A run to be made.

    Attributes:
        component: What it shows.
        inputs: Recipes by name.
    """

    component: str
    inputs: dict[str, InputRecipe]


@dataclass(frozen=True)
class PlannedGraph:
    """Runs of a graph to be made, one after another.

    Attributes:
        graph: Name of the graph.
        file: Its path in the bundle.
        runs: The runs.
        carried: What goes from one run to the next.
        kv_dtype: Storage of its KV cache, if it has one.
    """

    graph: str
    file: str
    runs: tuple[PlannedRun, ...]
    carried: tuple[Carried, ...] = ()
    kv_dtype: KVType | None = None


@dataclass
class _Lane:
    """The runs of a graph on one version of its inputs."""

    values: list[Arrays]
    carried: Arrays = field(default_factory=dict)


def compute_golden(bundle: Bundle, plans: Iterable[PlannedGraph]) -> GoldenFile:
    """Run every graph on its inputs, and on the same rounded to f16.

    How far the second is off says how much small differences grow in this checkpoint and weight
    format, and so how close a device can be expected to come.

    Raises:
        CheckpointError: A graph gives values that are not finite.
    """
    return GoldenFile(
        computed_by=f"onnxruntime {ort.__version__} {PROVIDER} {platform.machine()}",
        graphs=tuple(_compute(bundle, plan) for plan in plans),
    )


def _compute(bundle: Bundle, plan: PlannedGraph) -> GoldenGraph:
    file = bundle.path(plan.file)
    model = onnx.load(str(file), load_external_data=False)
    lanes = [_lane(plan, rounded=rounded) for rounded in (False, True)]
    # What is handed over as a copy may come out of a later piece than it goes into.
    splits = all(group.in_place for group in plan.carried)
    parts = list(pieces(model, PIECE_BYTES)) if splits else []
    if len(parts) > 1:
        _run_pieces(file, model, parts, plan, lanes)
    else:
        session = _session(file)
        for lane in lanes:
            for index in range(len(plan.runs)):
                _run(session, plan, lane, index)
    names = [output.name for output in model.graph.output]
    handed = {target for group in plan.carried for _, target in group.names()}
    kept = [name for name in names if name not in handed]
    runs = []
    for index, run in enumerate(plan.runs):
        exact, rounded = ({name: lane.values[index][name] for name in kept} for lane in lanes)
        if not all(np.isfinite(array).all() for array in exact.values()):
            raise CheckpointError(
                f"{plan.file} gives values that are not finite for {run.component}.",
                remedy="Mistrust this checkpoint, or choose wider weights.",
            )
        outputs = {name: GoldenOutput.of(array) for name, array in exact.items()}
        spread = Deviation.of(outputs, rounded).snr_db
        least = _MOST_DB if math.isinf(spread) else spread - _MARGIN_DB
        runs.append(
            GoldenRun(
                component=run.component,
                inputs=run.inputs,
                outputs=outputs,
                least_snr_db=round(min(max(least, _LEAST_DB), _MOST_DB), 1),
            )
        )
    return GoldenGraph(
        graph=plan.graph, kv_dtype=plan.kv_dtype, carried=plan.carried, runs=tuple(runs)
    )


def _lane(plan: PlannedGraph, *, rounded: bool) -> _Lane:
    values = []
    for run in plan.runs:
        arrays: Arrays = {}
        for name, recipe in run.inputs.items():
            array = recipe.array()
            if rounded and recipe.fill == "seeded":
                array = array.astype(np.float16).astype(np.float32)
            arrays[name] = array
        values.append(arrays)
    lane = _Lane(values)
    for group in plan.carried:
        for (name, _), array in zip(group.names(), group.arrays(), strict=True):
            lane.carried[name] = array
    return lane


def _run_pieces(
    file: Path,
    model: onnx.ModelProto,
    parts: Sequence[Piece],
    plan: PlannedGraph,
    lanes: Sequence[_Lane],
) -> None:
    outputs = {output.name for output in model.graph.output}
    for number, part in enumerate(parts):
        known = {**lanes[0].carried, **lanes[0].values[0]}
        types = {name: (known[name].dtype, known[name].ndim) for name in part.inputs}
        # External data is looked for beside the graph's file.
        piece = file.with_name(f".{file.stem}.piece.onnx")
        try:
            piece.write_bytes(part.model(model, types).SerializeToString())
            session = _session(piece)
        finally:
            piece.unlink(missing_ok=True)
        needed = outputs.union(*(later.inputs for later in parts[number + 1 :]))
        for lane in lanes:
            for index in range(len(plan.runs)):
                _run(session, plan, lane, index)
                lane.values[index] = {
                    name: array for name, array in lane.values[index].items() if name in needed
                }
        del session


def _session(file: Path) -> ort.InferenceSession:
    options = session_options(usable_cpus(), spinning=True)
    return ort.InferenceSession(str(file), options, providers=[PROVIDER])


def _run(session: ort.InferenceSession, plan: PlannedGraph, lane: _Lane, index: int) -> None:
    """Run a piece once; what comes out is added to the lane's values."""
    values = lane.values[index]
    binding = session.io_binding()
    held: dict[str, ort.OrtValue] = {}
    for port in session.get_inputs():
        array = values[port.name] if port.name in values else lane.carried[port.name]
        held[port.name] = ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array))
        binding.bind_ortvalue_input(port.name, held[port.name])
    shared = {
        target: source
        for group in plan.carried
        if group.in_place
        for source, target in group.names()
    }
    names = [port.name for port in session.get_outputs()]
    for name in names:
        if name in shared:
            binding.bind_ortvalue_output(name, held[shared[name]])
        else:
            binding.bind_output(name)
    session.run_with_iobinding(binding)
    sources = {target: source for group in plan.carried for source, target in group.names()}
    for name, value in zip(names, binding.get_outputs(), strict=True):
        if name not in sources:
            values[name] = np.array(value.numpy())
        elif name not in shared:
            lane.carried[sources[name]] = np.array(value.numpy())
