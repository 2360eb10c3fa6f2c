"""`lm.kv_int8.onnx`: ranges of keys and values, measured while the exported LM speaks."""

from __future__ import annotations

from pathlib import PurePosixPath

import numpy as np
import onnx

from edge_runtime.bundle import Bundle
from edge_runtime.errors import CheckpointError
from edge_runtime.kv_cache import KVCache
from edge_runtime.voxcpm2.spec import VoxCpm2Spec
from export.bundle_writer import GRAPHS, BundleWriter
from export.graph.int8_cache import KVRanges, with_int8_cache
from export.voxcpm2.calibration_speech import CalibrationSpeaker

# Range of int8 over the largest magnitude measured; see docs/decisions.md.
MARGIN = 1.5


def add_int8_cache(writer: BundleWriter, bundle: Bundle, spec: VoxCpm2Spec) -> str:
    """Measure the ranges with the graphs written so far and add the int8 variant of the LM.

    Args:
        writer: The bundle's writer.
        bundle: The same bundle as it is now, to run.
        spec: Sizes and files.

    Returns:
        The graph's path in the bundle.

    Raises:
        CheckpointError: Keys or values are not finite.
    """
    # The weights stay in their file.
    model = onnx.load(str(bundle.path(spec.graphs["lm"])), load_external_data=False)
    ranges = measure_ranges(bundle, spec, model)
    data = with_int8_cache(model, ranges, MARGIN).SerializeToString()
    stem = PurePosixPath(spec.graphs["lm"]).stem
    return writer.add_bytes(f"{GRAPHS}/{stem}.kv_int8.onnx", data)


def measure_ranges(bundle: Bundle, spec: VoxCpm2Spec, model: onnx.ModelProto) -> KVRanges:
    """Speak over an f32 cache and note the largest keys and values of each channel.

    Args:
        bundle: Holds the graphs, the embedding and the tokenizer.
        spec: Sizes and files.
        model: The LM's graph, f32 cache.

    Raises:
        CheckpointError: Keys or values are not finite.
    """
    ranges = KVRanges.of(model)

    def observe(cache: KVCache) -> None:
        buffers = dict(zip(cache.names("past"), cache.buffers, strict=True))
        ranges.observe(buffers, cache.rows)

    CalibrationSpeaker(bundle, spec).speak_all(observe)
    if not all(np.isfinite(found).all() for found in ranges.largest.values()):
        raise CheckpointError(
            f"{bundle.path(spec.graphs['lm'])}: keys or values of the LM are not finite.",
            remedy="Export without --int8-kv, and mistrust this checkpoint.",
        )
    return ranges
