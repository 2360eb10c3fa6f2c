"""What one evaluation on the NPU costs the host: copies, checks, the hand-over to another thread.

    python benchmarks/npu_host.py [--runs 2000]

The NPU is a stand-in that answers at once, so all that is left is the host's part. Sizes are
VoxCPM2's. Prints median and 99th percentile in microseconds.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import numpy.typing as npt

from edge_runtime.npu.adapter import NpuFlowGraph, NpuForm
from edge_runtime.npu.one_thread import OneThread

FORM = NpuForm(patch_size=4, latent_dim=64, hidden=1024, prefix_scale=2.0**-6)


class Instant:
    """A runner that answers at once, from the thread that a real one computes in."""

    def __init__(self) -> None:
        self._thread = OneThread("npu")
        self._answer = np.ones((2, FORM.latent_dim, FORM.patch_size), np.float32)

    def run(
        self, x: npt.NDArray[np.float32], prefix: npt.NDArray[np.float32]
    ) -> npt.NDArray[np.float32]:
        """One evaluation."""
        return self._thread.submit(self._answer.copy).result(1)

    def versions(self) -> dict[str, str]:
        """None."""
        return {}

    def close(self) -> None:
        """End the thread."""
        self._thread.close()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2000)
    runs = parser.parse_args().runs
    graph = NpuFlowGraph(Instant(), FORM)
    binding = graph.bind(fixed=True)
    random = np.random.default_rng(0)
    size, width, hidden = FORM.patch_size, FORM.latent_dim, FORM.hidden
    shapes = {"x": (1, size, width), "mu": (2, 2, hidden), "time_token": (1, 1, hidden),
              "cond_tokens": (1, size, hidden)}  # fmt: skip
    arrays = {name: random.standard_normal(s, np.float32) for name, s in shapes.items()}
    for name, array in arrays.items():
        binding.input(name, array)
    velocity = np.empty((2, size, width), np.float32)
    binding.output("velocity", velocity)
    times = []
    for _ in range(runs):
        began = time.perf_counter()
        binding.run()
        times.append((time.perf_counter() - began) * 1e6)
    p50, p99 = np.percentile(times, (50, 99))
    print(f"{runs} evaluations: median {p50:.0f} µs, 99 % within {p99:.0f} µs")
    graph.close()


if __name__ == "__main__":
    main()
