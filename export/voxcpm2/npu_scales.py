"""Powers of two that keep the NPU's estimator within f16."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from edge_runtime.errors import CheckpointError

# Largest finite f16.
F16_MAX = 65504.0
# Room that is left above the largest value that was seen.
MARGIN = 8.0
# A residual stream that is made smaller than this loses more than it gains: its smaller parts
# fall among the subnormal numbers of f16.
_LEAST_SCALE = 2.0**-12
# What no scale reaches: it comes out of a norm and goes into a softmax, a sigmoid, or out.
_FIXED = ("qk", "scores", "values", "gate", "velocity")
_REMEDY = "Export with --no-npu: the CPU computes it."


@dataclass(frozen=True)
class NpuScales:
    """What values are multiplied with on the NPU. Exact, since they are powers of two.

    Attributes:
        residual: The residual stream, with all that is added to it and its prefix.
        gated: The up projection, and so its product with the gate.
        margin: Room left above the largest value seen, as a factor.
        largest: Largest magnitudes seen, without scales, by what they belong to.
    """

    residual: float = 1.0
    gated: float = 1.0
    margin: float = MARGIN
    largest: Mapping[str, float] = field(default_factory=dict)

    @staticmethod
    def of(largest: Mapping[str, float], margin: float = MARGIN) -> NpuScales:
        """The smallest change that leaves the margin.

        Args:
            largest: Largest magnitudes of real runs: ``residual``, ``gated``, ``qk``, ``scores``,
                ``values``, ``gate``, ``velocity``.
            margin: Room to leave.

        Raises:
            CheckpointError: Values that no scale keeps within f16.
        """
        for kind, value in largest.items():
            if not math.isfinite(value) or (kind in _FIXED and value > F16_MAX):
                raise CheckpointError(
                    f"The flow estimator's {kind} reaches {value:.3g}, f16 ends at "
                    f"{F16_MAX:.0f}: it cannot run on the NPU.",
                    remedy=_REMEDY,
                )
        residual = _scale(largest.get("residual", 0.0), margin)
        if residual < _LEAST_SCALE:
            raise CheckpointError(
                f"The flow estimator's residual stream reaches {largest['residual']:.3g}: made "
                "small enough for f16, nothing beside its largest values would be left of it.",
                remedy=_REMEDY,
            )
        return NpuScales(residual, _scale(largest.get("gated", 0.0), margin), margin, dict(largest))


def _scale(largest: float, margin: float) -> float:
    if largest * margin <= F16_MAX:
        return 1.0
    return float(2.0 ** -math.ceil(math.log2(largest * margin / F16_MAX)))
