"""Whether the ONNX Runtime that a profile is for can run what is to be exported."""

from __future__ import annotations

from device_profiles.schema import Profile
from device_profiles.weight_formats import WeightFormat
from edge_runtime.errors import UsageError
from edge_runtime.requirements import older
from export.weights.plan import WeightPlan

# 8-bit blocks came with 1.22; earlier ones refuse such a graph when they load it.
_OLDEST = {WeightFormat.INT8_32: "1.22", WeightFormat.INT8_128: "1.22"}


def check_formats(plan: WeightPlan, profile: Profile) -> None:
    """Refuse formats that are newer than the oldest ONNX Runtime a profile is for.

    Raises:
        UsageError: Names the layers, their format and what to take instead.
    """
    needed = profile.requires.onnxruntime
    newer = {
        kind: format_
        for kind, format_ in plan.formats.items()
        if format_ in _OLDEST and older(needed, _OLDEST[format_])
    }
    if newer:
        kind, format_ = next(iter(newer.items()))
        groups = dict.fromkeys(each.value.partition(".")[0] for each in newer)
        choices = " ".join(f"--format {group}=int8" for group in groups)
        raise UsageError(
            f"{kind.value} in {format_.value} needs ONNX Runtime {_OLDEST[format_]}; profile "
            f"{profile.name} is for {needed} and newer.",
            remedy=f"Leave --weights and --format out, or add {choices}.",
        )
