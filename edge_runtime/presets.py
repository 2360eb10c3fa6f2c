"""Named trades of time for closeness to the full solver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Preset:
    """How a patch is solved. Measured distances: docs/decisions.md.

    Attributes:
        steps: Euler steps; the first costs nothing.
        even: Whether the steps are of equal width after a short first one, instead of the
            official schedule. Closer to the full solver where steps are few.
    """

    steps: int
    even: bool = False


PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        "quality": Preset(10),
        "balanced": Preset(7, even=True),
        "fast": Preset(5, even=True),
    }
)
