"""What the checks look at: a board's files, its profile, this Python, and a bundle."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from device_profiles.catalog import FoundProfile, ProfileLoadError, find_profile
from device_profiles.detect import BoardFacts, detect
from device_profiles.schema import Profile
from edge_runtime.doctor.ort_install import OrtInstall
from edge_runtime.errors import ProfileError
from edge_runtime.state_folder import state_folder


@dataclass(frozen=True)
class Scene:
    """What is examined.

    Attributes:
        root: Where ``proc``, ``sys``, ``etc``, ``dev`` and ``usr`` are read.
        facts: Of the board.
        found: Its profile, with the reasons.
        ort: The installed ONNX Runtime.
        state: The state folder.
        bundle: A bundle's folder, or None.
    """

    root: Path
    facts: BoardFacts
    found: FoundProfile
    ort: OrtInstall = field(default_factory=OrtInstall)
    state: Path = Path("/nonexistent")
    bundle: Path | None = None

    @staticmethod
    def of(
        bundle: Path | None = None,
        *,
        profile: str | None = None,
        root: Path = Path("/"),
        machine: str | None = None,
        ort: OrtInstall | None = None,
        state: Path | None = None,
    ) -> Scene:
        """Look around.

        Raises:
            ProfileError: Unknown or wrong profile.
        """
        try:
            found = find_profile(profile, machine=machine, root=root)
        except ProfileLoadError as error:
            raise ProfileError(f"{error}.") from error
        return Scene(
            root=root,
            facts=detect(root, machine=machine),
            found=found,
            ort=ort or OrtInstall.read(),
            state=state or state_folder(),
            bundle=bundle,
        )

    @property
    def profile(self) -> Profile:
        """The profile."""
        return self.found.profile

    @property
    def is_jetson(self) -> bool:
        """Whether the board is one of NVIDIA's."""
        return self.facts.soc.startswith("tegra") or bool(self.facts.l4t)

    @property
    def is_rockchip(self) -> bool:
        """Whether the chip is one of Rockchip's."""
        return self.facts.soc.startswith("rk") or self.profile.soc.startswith("rk")
