"""Runs every check and says whether this device can speak now."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from edge_runtime.doctor.audio_checks import check_audio
from edge_runtime.doctor.board_checks import check_board
from edge_runtime.doctor.bundle_checks import check_files, check_golden, check_preparation
from edge_runtime.doctor.finding import Finding
from edge_runtime.doctor.memory_checks import check_memory, check_swap
from edge_runtime.doctor.npu_checks import check_npu
from edge_runtime.doctor.ort_checks import check_ort, check_providers_built, check_providers_tried
from edge_runtime.doctor.power_checks import check_power
from edge_runtime.doctor.python_checks import check_packages, check_python
from edge_runtime.doctor.scene import Scene
from edge_runtime.doctor.storage_checks import check_storage
from edge_runtime.golden.selftest import SelfTest
from edge_runtime.npu.record import NpuRecord

_BOARD: tuple[Callable[[Scene], list[Finding]], ...] = (
    check_board, check_python, check_packages, check_ort, check_providers_built,
    check_providers_tried, check_npu, check_power, check_swap,
)  # fmt: skip


@dataclass(frozen=True)
class Report:
    """All findings.

    Attributes:
        profile: The profile that they were made with.
        findings: In the order in which they were made.
        selftest: Result of the golden vectors, if they were run.
        npu: What became of the flow estimator on the NPU, if it was meant to be there.
    """

    profile: str
    findings: tuple[Finding, ...]
    selftest: SelfTest | None = None
    npu: NpuRecord | None = None

    @property
    def can_speak(self) -> bool:
        """Whether nothing stands in the way of speech."""
        return not any(finding.status == "fail" for finding in self.findings)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "can_speak": self.can_speak,
            "profile": self.profile,
            "findings": [finding.as_dict() for finding in self.findings],
            "selftest": self.selftest.as_dict() if self.selftest is not None else None,
            "npu": self.npu.as_dict() if self.npu is not None else None,
        }


def examine(scene: Scene) -> Report:
    """Make every check; none of them changes anything."""
    findings = [finding for check in _BOARD for finding in check(scene)]
    files = check_files(scene)
    bundle = files.bundle
    findings += [*check_memory(scene, bundle), *check_storage(scene, bundle), *check_audio(scene)]
    findings += files.findings
    if bundle is None:
        return Report(scene.profile.name, tuple(findings))
    findings += check_preparation(scene, bundle)
    tried = check_golden(scene, bundle)
    findings += tried.findings
    return Report(scene.profile.name, tuple(findings), tried.selftest, tried.npu)
