"""Whether an NPU computes the estimator as the CPU does, and faster: golden runs on both."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_runtime.backends.protocol import Graph
from edge_runtime.golden.golden_file import GoldenGraph, GoldenRun
from edge_runtime.golden.replay import replay
from edge_runtime.npu.runner import NpuError

# Runs that are timed after one that is not.
_TIMED = 5


@dataclass(frozen=True)
class Trial:
    """What was found.

    Attributes:
        snr_db: Signal-to-noise ratio against the CPU's golden values, of the worst run.
        npu_ms: Median time of one evaluation.
        cpu_ms: The same on the CPU; None where it was not asked for.
    """

    snr_db: float
    npu_ms: float
    cpu_ms: float | None

    def why_not(self, least_snr_db: float) -> NpuError | None:
        """Why the NPU is not to be used; None if it is."""
        # Written so that NaN is too little.
        if not self.snr_db >= least_snr_db:
            return NpuError(
                f"The NPU's golden run is {self.snr_db:.1f} dB from the CPU's values, at least "
                f"{least_snr_db:g} dB is asked for.", reason="golden",
                remedy="Update librknnrt, or convert the model with the toolkit of its version.",
            )  # fmt: skip
        if self.cpu_ms is not None and self.npu_ms > self.cpu_ms:
            return NpuError(
                f"One evaluation takes {self.npu_ms:.1f} ms on the NPU and {self.cpu_ms:.1f} ms on "
                "this CPU.", reason="slower",
                remedy="Set the NPU's governor to performance (see 'boardvoice doctor').",
            )  # fmt: skip
        return None


def try_golden(npu: Graph, cpu: Graph | None, golden: GoldenGraph) -> Trial:
    """Run the golden inputs.

    Args:
        npu: The estimator on the NPU.
        cpu: The same on the CPU, to be timed beside it; None where time does not matter.
        golden: Golden runs of the estimator.

    Raises:
        NpuError: A run failed, or its values are not sound.
        BackendError: The CPU's failed.
    """
    worst = math.inf
    for _, deviation in replay(npu, golden):
        worst = min(worst, deviation.snr_db)
    first = golden.runs[0]
    return Trial(
        worst, _milliseconds(npu, first), None if cpu is None else _milliseconds(cpu, first)
    )


def _milliseconds(graph: Graph, run: GoldenRun) -> float:
    binding = graph.bind(fixed=True)
    # Named, so that they live until the runs: what is bound stays the caller's.
    inputs: Mapping[str, npt.NDArray[Any]] = {
        name: np.ascontiguousarray(recipe.array()) for name, recipe in run.inputs.items()
    }
    outputs = {name: np.zeros(entry.shape, np.float32) for name, entry in run.outputs.items()}
    for name, array in inputs.items():
        binding.input(name, array)
    for name, array in outputs.items():
        binding.output(name, array)
    binding.run()
    times = []
    for _ in range(_TIMED):
        began = time.perf_counter()
        binding.run()
        times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times)
