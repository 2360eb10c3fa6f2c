"""VoxCPM2 at run time: what `edge_runtime` calls for this family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from device_profiles.schema import Profile
from edge_runtime.backends.tensorrt_options import ShapeRange
from edge_runtime.bundle import Bundle
from edge_runtime.kv_cache import KVType
from edge_runtime.plan.request import FamilyPlan, PlanRequest
from edge_runtime.prepare.prepared_info import Workspace
from edge_runtime.prepare.probe import GraphProbe
from edge_runtime.resources import Resources
from edge_runtime.voxcpm2.largest_inputs import largest_inputs
from edge_runtime.voxcpm2.planned_runs import planned_runs
from edge_runtime.voxcpm2.run_memory import estimated_workspaces
from edge_runtime.voxcpm2.shape_ranges import shape_ranges as ranges_of
from edge_runtime.voxcpm2.speaker import Speaker
from edge_runtime.voxcpm2.spec import VoxCpm2Spec, kv_shape


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


def plan(model: Mapping[str, Any], profile: Profile, request: PlanRequest) -> FamilyPlan:
    """What would run for a request on a board.

    Args:
        model: The manifest's ``model``.
        profile: The board's.
        request: What is spoken.

    Raises:
        CapacityError: The request needs more KV rows than there are.
    """
    spec = VoxCpm2Spec.model_validate(model)
    return planned_runs(spec, request, kv_shape(spec, profile.kv))


def workspaces(model: Mapping[str, Any], kv_dtype: KVType) -> dict[str, tuple[Workspace, ...]]:
    """Scratch memory by graph where it was not measured.

    Args:
        model: The manifest's ``model``.
        kv_dtype: Storage of keys and values.
    """
    return estimated_workspaces(VoxCpm2Spec.model_validate(model), kv_dtype)


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
