"""What computes the converted estimator: the NPU, or the toolkit's simulator on a PC."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from edge_runtime.errors import BackendError

FloatArray = npt.NDArray[np.float32]


class NpuError(BackendError):
    """The NPU cannot be used, or failed.

    Args:
        message: What is wrong, in one sentence.
        reason: Machine-readable, such as ``timeout``; see docs/npu.md.
        remedy: What the user can do about it.
    """

    def __init__(self, message: str, *, reason: str, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.reason = reason


class NpuRunner(Protocol):
    """The estimator on its device, one shape only."""

    def run(self, x: FloatArray, prefix: FloatArray) -> FloatArray:
        """One evaluation.

        Args:
            x: Noisy patch [2, D, P], scaled as the entry says.
            prefix: Conditioning tokens [2, hidden, 3 + P], scaled as the entry says.

        Returns:
            Velocity [2, D, P], the caller's own.

        Raises:
            NpuError: It failed.
        """
        ...

    def versions(self) -> dict[str, str]:
        """Versions of everything that takes part."""
        ...

    def close(self) -> None:
        """Release the device; later calls do nothing."""
        ...
