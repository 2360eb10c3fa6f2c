"""MioCodec at run time: what `edge_runtime` calls for this family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from device_profiles.schema import Profile
from edge_runtime.backends.tensorrt_options import ShapeRange
from edge_runtime.bundle import Bundle
from edge_runtime.kv_cache import KVType
from edge_runtime.miocodec.codec import Codec
from edge_runtime.miocodec.largest_inputs import estimated_workspaces, largest_inputs
from edge_runtime.miocodec.planned_runs import planned_runs
from edge_runtime.miocodec.spec import MioCodecSpec
from edge_runtime.plan.request import FamilyPlan, PlanRequest
from edge_runtime.prepare.prepared_info import Workspace
from edge_runtime.prepare.probe import GraphProbe
from edge_runtime.resources import Resources


def load(bundle: Bundle, resources: Resources) -> Codec:
    """Load a bundle of this family."""
    return Codec(bundle, resources)


def probes(model: Mapping[str, Any], kv_dtype: KVType) -> dict[str, tuple[GraphProbe, ...]]:
    """Inputs that show each graph's scratch memory, by graph and by size, the smallest first.

    Args:
        model: The manifest's ``model``.
        kv_dtype: Not used: there is no cache.
    """
    return largest_inputs(MioCodecSpec.model_validate(model))


def shape_ranges(model: Mapping[str, Any]) -> dict[str, dict[str, ShapeRange]]:
    """Shapes of graphs that may run on TensorRT: none of this family does."""
    MioCodecSpec.model_validate(model)
    return {}


def plan(model: Mapping[str, Any], profile: Profile, request: PlanRequest) -> FamilyPlan:
    """What would run to decode a clip.

    Args:
        model: The manifest's ``model``.
        profile: The board's.
        request: Its patches are seconds of the clip here.
    """
    return planned_runs(MioCodecSpec.model_validate(model), request)


def workspaces(model: Mapping[str, Any], kv_dtype: KVType) -> dict[str, tuple[Workspace, ...]]:
    """Scratch memory by graph where it was not measured."""
    return estimated_workspaces(MioCodecSpec.model_validate(model))


def component_of(graph: str, shapes: Mapping[str, tuple[int, ...]]) -> str:
    """The component that a run of a graph belongs to: decoding, or else its own name."""
    return "decode" if graph.startswith("wave_") else graph
