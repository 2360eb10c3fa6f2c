"""The estimator for the NPU, from recorded decoding to the bundle's `npu/flow.json`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort

from device_profiles.catalog import usable_cpus
from device_profiles.combinations import npu_target
from device_profiles.schema import Profile
from edge_runtime.backends.ort import PROVIDER, session_options
from edge_runtime.bundle import Bundle
from edge_runtime.npu.flow_entry import ENTRY, NpuFlowEntry
from edge_runtime.placement import NPU_PLACES
from edge_runtime.rknn_toolkit.conversions import (
    GRAPH,
    WEIGHTS,
    ConversionCache,
    ConversionSource,
    NpuPrecision,
)
from edge_runtime.rknn_toolkit.convert import ConversionOptions, convert
from edge_runtime.voxcpm2.spec import VoxCpm2Spec
from export.bundle_writer import BundleWriter
from export.graph.builder import GraphBuilder
from export.graph.npu_lint import check_for_npu
from export.graph.parameters import Parameters
from export.progress import ExportProgress
from export.voxcpm2.config import VoxCpm2Config
from export.voxcpm2.flow_npu import build_flow_npu
from export.voxcpm2.npu_inputs import NpuInput, record_inputs
from export.voxcpm2.npu_scales import NpuScales
from export.voxcpm2.npu_taps import LARGEST, LargestValues
from export.weights.plan import WeightPlan
from export.weights.weight_file import WeightFile

# Between the shapes that the bundle's other parts have and those of the NPU's operators.
_ON_CPU = ("x_in", "prefix_in", "velocity_out")
_DEFAULT_TARGET = "rk3588"
# Runs that int8 ranges are taken from; each takes the toolkit a second.
_MOST_CALIBRATION = 54
Build = Callable[[GraphBuilder], onnx.ModelProto]


@dataclass(frozen=True)
class NpuExport:
    """What is asked for.

    Attributes:
        target: Chip.
        precision: Arithmetic.
        limit_s: Longest that the conversion may take.
        log: Takes the toolkit's output if it fails.
    """

    target: str = _DEFAULT_TARGET
    precision: NpuPrecision = "f16"
    limit_s: float = 3600.0
    log: Path | None = None

    @staticmethod
    def of(
        profile: Profile, *, wanted: bool | None, precision: NpuPrecision | None
    ) -> NpuExport | None:
        """What a profile and the options ask for; None for nothing.

        Args:
            profile: The device that the bundle is for.
            wanted: ``--npu`` or ``--no-npu``; None where neither was given.
            precision: ``--npu-precision``; None for the profile's.
        """
        flow = profile.flow
        meant = flow.place in NPU_PLACES
        if not (meant if wanted is None else wanted):
            return None
        target = npu_target(profile.soc) if flow.place == "rknn" else _DEFAULT_TARGET
        return NpuExport(target, precision or ("int8" if flow.precision == "int8" else "f16"))


def add_npu_flow(
    writer: BundleWriter,
    bundle: Bundle,
    spec: VoxCpm2Spec,
    params: Parameters,
    config: VoxCpm2Config,
    wanted: NpuExport,
    progress: ExportProgress,
) -> NpuFlowEntry:
    """Record, choose scales, build, convert, and add model and description to the bundle.

    Args:
        writer: The bundle's writer.
        bundle: The same bundle as it is now, to run.
        spec: Sizes and files.
        params: The checkpoint's parameters.
        config: Its config.
        wanted: What to make.
        progress: Told of each step.

    Raises:
        ToolkitError: No toolkit, or it fails.
        MemoryBudgetError: The conversion would need more memory than there is.
        CheckpointError: Values that no scale keeps within f16.
    """
    name = f"npu/flow.{wanted.target}.{wanted.precision}.rknn"
    progress.file(f"{name} (recording)")
    inputs = record_inputs(bundle, spec)
    cache = ConversionCache.default()
    with cache.new() as scratch:
        progress.file(f"{name} (scales)")
        scales = NpuScales.of(largest_values(scratch / "scales", params, config, inputs))
        progress.file(f"{name} (graph)")
        folder = scratch / "source"
        source = write_source(folder, params, config, scales)
        if wanted.precision == "int8":
            _write_calibration(source.calibration, inputs, scales)
            source = ConversionSource.of(folder)
        options = ConversionOptions(
            wanted.target, wanted.precision, _ON_CPU, wanted.limit_s, wanted.log
        )
        model, record = convert(
            source, options, cache, lambda step: progress.file(f"{name} ({step})")
        )
        (writer.folder / "npu").mkdir(exist_ok=True)
        writer.add_copy(name, model)
    entry = NpuFlowEntry(
        model=name,
        target=wanted.target,
        precision=wanted.precision,
        patch_size=config.patch_size,
        latent_dim=config.feat_dim,
        hidden=config.flow.hidden,
        prefix_scale=scales.residual,
        gated_scale=scales.gated,
        margin=scales.margin,
        largest={kind: float(f"{value:.4g}") for kind, value in scales.largest.items()},
        toolkit=record.toolkit,
        source_sha256=record.source_sha256,
        operators=record.operators,
        cpu_operators=record.cpu_operators,
        cycles=record.cycles,
        memory_bytes=record.memory_bytes,
    )
    writer.add_bytes(ENTRY, entry.model_dump_json(indent=2).encode())
    return entry


def write_source(
    folder: Path, params: Parameters, config: VoxCpm2Config, scales: NpuScales
) -> ConversionSource:
    """Write the graph that is converted into a new folder.

    Raises:
        CheckpointError: It is not fit for the NPU.
    """
    model = _write(folder, lambda graph: build_flow_npu(graph, params, config, scales))
    check_for_npu(model)
    return ConversionSource.of(folder)


def largest_values(
    folder: Path, params: Parameters, config: VoxCpm2Config, inputs: Sequence[NpuInput]
) -> dict[str, float]:
    """Largest magnitudes inside the estimator over recorded inputs, by what they belong to.

    Args:
        folder: New folder for a graph that tells them.
        params: The checkpoint's parameters.
        config: Its config.
        inputs: Recorded inputs.
    """
    taps = LargestValues()
    _write(folder, lambda graph: build_flow_npu(graph, params, config, NpuScales(), taps))
    options = session_options(usable_cpus(), spinning=True)
    session = ort.InferenceSession(str(folder / GRAPH), options, providers=[PROVIDER])
    largest = np.zeros(len(taps.kinds), np.float32)
    for recorded in inputs:
        feeds = {"x": recorded.x, "prefix": recorded.prefix}
        # Not np.fmax: a NaN has to stay.
        largest = np.maximum(largest, session.run([LARGEST], feeds)[0])
    found: dict[str, float] = {}
    for kind, value in zip(taps.kinds, largest, strict=True):
        before = found.get(kind, 0.0)
        found[kind] = float(value) if not value <= before else before
    return found


def _write(folder: Path, build: Build) -> onnx.ModelProto:
    folder.mkdir()
    with WeightFile(folder / WEIGHTS) as weights:
        model = build(GraphBuilder("flow_npu", weights, WeightPlan.named("f32")))
    (folder / GRAPH).write_bytes(model.SerializeToString())
    return model


def _write_calibration(folder: Path, inputs: Sequence[NpuInput], scales: NpuScales) -> None:
    folder.mkdir()
    step = max(1, -(-len(inputs) // _MOST_CALIBRATION))
    for index, recorded in enumerate(inputs[::step]):
        np.save(folder / f"{index:03}.x.npy", recorded.x)
        np.save(folder / f"{index:03}.prefix.npy", recorded.prefix * np.float32(scales.residual))
