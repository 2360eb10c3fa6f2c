"""One run of a graph that shows how much memory it takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class GraphProbe:
    """Inputs of one size, and all else as large as the runtime has it.

    Attributes:
        inputs: Arrays by input name.
        size: Rows, patches or whatever of it the graph takes a varying number.
        cached: Rows in its KV cache, if it has one.
        in_place: Outputs that share the buffer of an input, by output name.
    """

    inputs: Mapping[str, npt.NDArray[Any]]
    size: int = 1
    cached: int = 0
    in_place: Mapping[str, str] = field(default_factory=dict)


def zeros(*shape: int, dtype: npt.DTypeLike = np.float32) -> npt.NDArray[Any]:
    """Zeros that are really there, not pages still to be touched."""
    return np.full(shape, 0, dtype)
