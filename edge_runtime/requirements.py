"""Minimum versions of a profile, against what is installed here."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass

import onnxruntime

from device_profiles.detect import BoardFacts, detect
from device_profiles.schema import Profile
from edge_runtime.errors import ProfileError

# Without these nothing runs; the others are only for an accelerator.
_ESSENTIAL = ("python", "onnxruntime")
_NAMES = {
    "python": "Python",
    "onnxruntime": "ONNX Runtime",
    "l4t": "Jetson Linux",
    "rknpu_driver": "the NPU driver",
    "librknnrt": "librknnrt",
}
_REMEDIES = {
    "python": "Install a newer Python and this package in it, or name another profile.",
    "onnxruntime": "Update onnxruntime, or name another profile.",
    "l4t": "Update the board to a newer JetPack.",
    "rknpu_driver": "Update the board's kernel.",
    "librknnrt": "Install a newer librknnrt.so.",
}


@dataclass(frozen=True)
class Shortfall:
    """A version that is too old.

    Attributes:
        name: Key of the profile's ``requires``.
        needed: Oldest version that works.
        found: What is here.
    """

    name: str
    needed: str
    found: str

    @property
    def essential(self) -> bool:
        """Whether nothing runs without it."""
        return self.name in _ESSENTIAL

    @property
    def reason(self) -> str:
        """Part of a sentence."""
        return f"it needs {_NAMES[self.name]} {self.needed} or newer, this is {self.found}"

    @property
    def remedy(self) -> str:
        """What to do, as a sentence."""
        return _REMEDIES[self.name]


def shortfalls(
    profile: Profile, versions: Mapping[str, str] | None = None
) -> tuple[Shortfall, ...]:
    """Versions below a profile's minimum.

    Args:
        profile: Its ``requires``.
        versions: What is installed, by key of ``requires``; this device's by default. One that
            could not be read (in a container, say) is taken for good enough.
    """
    wanted = {
        name: needed for name, needed in profile.requires.model_dump().items() if needed is not None
    }
    if versions is None:
        # The board is looked at only where that matters.
        facts = None if set(wanted) <= set(_ESSENTIAL) else detect()
        versions = installed_versions(facts)
    return tuple(
        Shortfall(name, needed, versions[name])
        for name, needed in wanted.items()
        if versions.get(name) and older(versions[name], needed)
    )


def require(profile: Profile, found: tuple[Shortfall, ...]) -> None:
    """Refuse where nothing could run.

    Raises:
        ProfileError: Python or ONNX Runtime is older than the profile needs.
    """
    for shortfall in found:
        if shortfall.essential:
            raise ProfileError(
                f"Profile {profile.name} cannot be used: {shortfall.reason}.",
                remedy=shortfall.remedy,
            )


def installed_versions(facts: BoardFacts | None) -> dict[str, str]:
    """Versions by key of ``requires``, empty where unknown; the board's only with its facts."""
    return {
        "python": platform.python_version(),
        "onnxruntime": onnxruntime.__version__,
        "l4t": facts.l4t if facts else "",
        "rknpu_driver": facts.npu.version if facts else "",
    }


def older(version: str, needed: str) -> bool:
    """Whether a version is below another; ``1.9`` is below ``1.10``, ``1.23`` is ``1.23.0``."""
    mine, least = _numbers(version), _numbers(needed)
    length = max(len(mine), len(least))
    return mine + (0,) * (length - len(mine)) < least + (0,) * (length - len(least))


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()
