"""VoxCPM2 at run time: what `edge_runtime` calls for this family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edge_runtime.backends.tensorrt_options import ShapeRange
from edge_runtime.bundle import Bundle
from edge_runtime.kv_cache import KVType
from edge_runtime.prepare.probe import GraphProbe
from edge_runtime.resources import Resources
from edge_runtime.voxcpm2.largest_inputs import largest_inputs
from edge_runtime.voxcpm2.shape_ranges import shape_ranges as ranges_of
from edge_runtime.voxcpm2.speaker import Speaker
from edge_runtime.voxcpm2.spec import VoxCpm2Spec


def load(bundle: Bundle, resources: Resources) -> Speaker:
    """Load a bundle of this family."""
    return Speaker(bundle, resources)


def probes(model: Mapping[str, Any], kv_dtype: KVType) -> dict[str, tuple[GraphProbe, ...]]:
    """Inputs that show each graph's scratch memory, by graph and by size, the smallest first.

    Args:
        model: The manifest's ``model``.
        kv_dtype: Storage of keys and values.
    """
    return largest_inputs(VoxCpm2Spec.model_validate(model), kv_dtype)


def shape_ranges(model: Mapping[str, Any]) -> dict[str, dict[str, ShapeRange]]:
    """Shapes of dynamic inputs by graph and input, of graphs that may run on TensorRT.

    Args:
        model: The manifest's ``model``.
    """
    return ranges_of(VoxCpm2Spec.model_validate(model))


def component_of(graph: str, shapes: Mapping[str, tuple[int, ...]]) -> str:
    """The component, as the metrics name them, that a run of a graph belongs to.

    Args:
        graph: Graph name.
        shapes: Shape of every input.
    """
    if graph == "lm":
        return "lm_step" if shapes["rows"][1] == 1 else "prefill"
    return {"flow_condition": "flow", "vae_decoder": "vae_decode", "vae_encoder": "encode"}.get(
        graph, graph
    )
