"""What became of the flow estimator on the NPU: for results, `/metrics` and the doctor."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from edge_runtime.errors import BoardvoiceError, MemoryBudgetError
from edge_runtime.npu.runner import NpuError


@dataclass
class NpuRecord:
    """Filled from the load on; once the CPU has taken over, it keeps the estimator.

    Attributes:
        place: ``rknn`` or ``rknn-sim``.
        in_use: Whether the NPU computes it now.
        reason: Why not, machine-readable; empty while it does. See docs/npu.md.
        detail: The same as a sentence, with what to do.
        evaluations: Evaluations on the NPU.
        cpu_evaluations: Evaluations on the CPU since it took over.
        snr_db: The golden run's distance from the CPU's values, once it ran.
        npu_ms: Time of one evaluation then.
        cpu_ms: The same on the CPU.
        memory_bytes: NPU memory that the model takes.
        versions: Of everything that takes part.
    """

    place: str
    in_use: bool = False
    reason: str = ""
    detail: str = ""
    evaluations: int = 0
    cpu_evaluations: int = 0
    snr_db: float | None = None
    npu_ms: float | None = None
    cpu_ms: float | None = None
    memory_bytes: int = 0
    versions: dict[str, str] = field(default_factory=dict)

    def gave_up(self, error: BoardvoiceError) -> None:
        """The CPU computes from here on."""
        self.in_use = False
        self.reason = reason_of(error)
        self.detail = f"{error.message} {error.remedy}".strip()

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "place": self.place,
            "in_use": self.in_use,
            "reason": self.reason,
            "detail": self.detail,
            "evaluations": self.evaluations,
            "cpu_evaluations": self.cpu_evaluations,
            "snr_db": None if self.snr_db is None else round(self.snr_db, 2),
            "npu_ms": None if self.npu_ms is None else round(self.npu_ms, 2),
            "cpu_ms": None if self.cpu_ms is None else round(self.cpu_ms, 2),
            "memory_bytes": self.memory_bytes,
            "versions": dict(self.versions),
        }


def reason_of(error: BoardvoiceError) -> str:
    """Machine-readable reason of an error on the way to or on the NPU."""
    if isinstance(error, NpuError):
        return error.reason
    return "memory" if isinstance(error, MemoryBudgetError) else error.code
