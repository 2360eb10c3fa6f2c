"""Shapes that graphs are run with, for back ends that are built for ranges of shapes."""

from __future__ import annotations

from edge_runtime.backends.tensorrt_options import ShapeRange
from edge_runtime.voxcpm2.spec import VoxCpm2Spec


def shape_ranges(spec: VoxCpm2Spec) -> dict[str, dict[str, ShapeRange]]:
    """Ranges by graph and input; the flow estimator alone, since nothing else is placed there.

    Its batch is 2 with guidance, 1 without.
    """
    rest = (2, spec.flow.hidden)
    return {"flow": {"mu": ShapeRange((1, *rest), (2, *rest), (2, *rest))}}
