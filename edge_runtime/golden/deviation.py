"""How far the outputs of a run are from the golden ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_runtime.golden.golden_file import GoldenOutput, norm, samples

_TINY = 1e-30


@dataclass(frozen=True)
class Deviation:
    """Error of one run.

    Attributes:
        snr_db: Signal-to-noise ratio, outputs counting alike; infinite where all is equal.
        max_error: Largest error of any value, as a share of its output's largest magnitude.
        finite: Whether all values are.
    """

    snr_db: float
    max_error: float
    finite: bool = True

    @property
    def exact(self) -> bool:
        """Whether every sample is the same bits."""
        return self.finite and math.isinf(self.snr_db) and self.snr_db > 0

    @staticmethod
    def of(
        expected: Mapping[str, GoldenOutput], found: Mapping[str, npt.NDArray[Any]]
    ) -> Deviation:
        """Compare.

        A single number for all outputs of a run: a few logits alone would vary by luck, and among
        thousands of other values they would not count at all.
        """
        noise, largest = 0.0, 0.0
        for name, golden in expected.items():
            array, wanted = found[name], golden.values.astype(np.float64)
            if not np.isfinite(array).all():
                return Deviation(-math.inf, math.inf, finite=False)
            got = samples(array, golden.stride).astype(np.float64)
            error = np.abs(got - wanted)
            share = float(np.linalg.norm(error)) / max(float(np.linalg.norm(wanted)), _TINY)
            # No closer than the norms are, which take in what was not sampled. Sums are rounded.
            length = abs(norm(array) - golden.norm) / max(golden.norm, _TINY)
            share = max(share, length if length > 1e-9 else 0.0)
            noise += share**2 / len(expected)
            peak = max(float(np.abs(wanted).max(initial=0)), _TINY)
            largest = max(largest, float(error.max(initial=0)) / peak)
        return Deviation(-10 * math.log10(noise) if noise > 0 else math.inf, largest)
