"""Rockchip's NPU: its driver in all the places where kernels show it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from device_profiles.probes.files import read_text, shown

# The first needs root, the second is built into some kernels, the third is there for modules.
_VERSIONS = ("sys/kernel/debug/rknpu/version", "proc/rknpu/version", "sys/module/rknpu/version")
_SIGNS = (
    "dev/rknpu",
    "dev/dri/by-path/platform-*.npu-render",
    "sys/bus/platform/drivers/RKNPU",
    "sys/class/devfreq/*.npu",
)
# Mainline's driver for the same hardware; Rockchip's library does not work with it.
_ROCKET = ("sys/bus/platform/drivers/rocket", "sys/module/rocket")
_LIBRARIES = (
    "usr/lib/librknnrt.so",
    "usr/lib/aarch64-linux-gnu/librknnrt.so",
    "usr/local/lib/librknnrt.so",
    "lib/librknnrt.so",
)


@dataclass(frozen=True)
class NpuFacts:
    """The NPU as the kernel shows it.

    Attributes:
        driver: ``rknpu``, ``rocket``, or nothing.
        version: The driver's version; empty where only root may read it.
        source: File that was read.
        library: Rockchip's runtime library; empty if it is not installed.
    """

    driver: str = ""
    version: str = ""
    source: str = ""
    library: str = ""

    @staticmethod
    def read(root: Path) -> NpuFacts:
        """Look in every known place."""
        library = next((shown(root / p, root) for p in _LIBRARIES if (root / p).exists()), "")
        for place in _VERSIONS:
            found = re.search(r"(\d+\.\d+\.\d+)", read_text(root / place))
            if found is not None:
                return NpuFacts("rknpu", found[1], shown(root / place, root), library)
        for driver, places in (("rknpu", _SIGNS), ("rocket", _ROCKET)):
            for place in places:
                found_path = next(root.glob(place), None)
                if found_path is not None:
                    return NpuFacts(driver, "", shown(found_path, root), library)
        return NpuFacts(library=library)
