"""One finding of the doctor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warn", "fail", "skipped"]


@dataclass(frozen=True)
class Finding:
    """What a check found.

    Attributes:
        check: What was looked at.
        status: ``fail`` means that this device cannot speak now, ``warn`` that it speaks slower or
            otherwise than it could, ``skipped`` that there was nothing to look at.
        finding: What was found.
        evidence: Where it was seen.
        remedy: What to do; empty where nothing needs to be done.
    """

    check: str
    status: Status
    finding: str
    evidence: str = ""
    remedy: str = ""

    def as_dict(self) -> dict[str, str]:
        """For JSON."""
        return {
            "check": self.check,
            "status": self.status,
            "finding": self.finding,
            "evidence": self.evidence,
            "remedy": self.remedy,
        }
