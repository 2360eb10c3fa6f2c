"""What a profile sets for every session, beside how many threads it has."""

from __future__ import annotations

from dataclasses import dataclass

from device_profiles.schema import Profile


@dataclass(frozen=True)
class SessionSettings:
    """Settings of the CPU provider's sessions.

    Attributes:
        arena: Whether freed scratch memory is kept for the next run.
        kleidiai: Whether Arm's KleidiAI kernels are used.
    """

    arena: bool = True
    kleidiai: bool = True

    @staticmethod
    def of(profile: Profile) -> SessionSettings:
        """What a profile says."""
        return SessionSettings(profile.runtime.arena, profile.runtime.kleidiai)

    @property
    def words(self) -> str:
        """What differs from the defaults; packed weights and measured memory depend on it."""
        parts = ("" if self.arena else "no arena", "" if self.kleidiai else "no KleidiAI")
        return ", ".join(filter(None, parts))

    def entries(self) -> dict[str, str]:
        """Configuration entries of a session."""
        return {} if self.kleidiai else {"mlas.disable_kleidiai": "1"}
