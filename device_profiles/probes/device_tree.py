"""What the device tree and the chip say about themselves."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from device_profiles.probes.files import read_bytes, read_text, shown

# In containers /proc/device-tree is a link to what is masked there.
_TREES = ("proc/device-tree", "sys/firmware/devicetree/base")
_SOCS = (
    "rk3582", "rk3588s2", "rk3588s", "rk3588", "rk3576", "rk3566", "rk3568", "tegra194",
    "tegra234", "tegra264", "bcm2712",
)  # fmt: skip
_SAME_CHIP = {"rk3588s": "rk3588", "rk3588s2": "rk3588", "rk3568": "rk3566"}
# Tegra's chip numbers, from /sys/module/tegra_fuse/parameters/tegra_chip_id.
_TEGRA_CHIPS = {25: "tegra194", 35: "tegra234", 38: "tegra264"}
# Where the NPU sits on the bus tells the chip apart.
_NPU_NODES = {"fdab0000.npu": "rk3588", "27700000.npu": "rk3576", "fde40000.npu": "rk3566"}
_MODULE = re.compile(r"p\d{4}-\d{4}(?:-super)?")
# 699-13767-0000-300 in the EEPROM, 3767-0000-300 in chosen/ids.
_PART_NUMBER = re.compile(r"(?:\b699-\d|(?<![\d-]))(\d{4})-(\d{4})\b")
_RELEASE = re.compile(r"R(\d+) \(release\), REVISION: (\d+(?:\.\d+)*)")
_PACKAGE = re.compile(
    rb"^Package: nvidia-l4t-core\n(?:[^\n]+\n)*?Version: (\d+\.\d+(?:\.\d+)?)", re.MULTILINE
)


@dataclass(frozen=True)
class DeviceTree:
    """Names from the device tree; empty where there is none.

    Attributes:
        model: For people.
        compatible: From the board to the chip.
        source: Folder that was read.
        part_number: Of a Jetson module, from its EEPROM.
        part_source: File that was read.
    """

    model: str = ""
    compatible: tuple[str, ...] = ()
    source: str = ""
    part_number: str = ""
    part_source: str = ""

    @staticmethod
    def read(root: Path) -> DeviceTree:
        """Read the first tree that says something."""
        for folder in (root / tree for tree in _TREES):
            model, compatible = _strings(folder / "model"), _strings(folder / "compatible")
            if not model and not compatible:
                continue
            part, part_source = "", ""
            for name in ("chosen/sku", "chosen/ids", "nvidia,boardids"):
                text = " ".join(_strings(folder / name))
                if _PART_NUMBER.search(text):
                    part, part_source = text.strip(), shown(folder / name, root)
                    break
            source = shown(folder, root)
            return DeviceTree(" ".join(model), tuple(compatible), source, part, part_source)
        return DeviceTree()

    def modules(self) -> tuple[str, ...]:
        """Jetson modules, the surest first: what the EEPROM says, then the tree's names."""
        named = [found for entry in self.compatible for found in _MODULE.findall(entry)]
        part = _PART_NUMBER.search(self.part_number)
        if part is not None:
            module = f"p{part[1]}-{part[2]}"
            boosted = any(name.endswith("-super") for name in named)
            named = [f"{module}-super"] * boosted + [module, *named]
        plain = [name.removesuffix("-super") for name in named]
        return tuple(dict.fromkeys(named + plain))

    def soc(self) -> tuple[str, str]:
        """The first chip among the names, and the name; a board may list a bigger one after it."""
        for entry in self.compatible:
            vendor, _, chip = entry.partition(",")
            if vendor in ("rockchip", "nvidia", "brcm") and chip in _SOCS:
                return _SAME_CHIP.get(chip, chip), entry
        return "", ""


def chip_elsewhere(root: Path) -> tuple[str, str]:
    """The chip by places that containers see too, and the place."""
    chip = root / "sys/module/tegra_fuse/parameters/tegra_chip_id"
    number = read_text(chip)
    if number.isdecimal() and int(number) in _TEGRA_CHIPS:
        return _TEGRA_CHIPS[int(number)], shown(chip, root)
    if read_text(root / "sys/devices/soc0/family") == "Tegra":
        soc_id = root / "sys/devices/soc0/soc_id"
        number = read_text(soc_id)
        if number.isdecimal() and int(number) in _TEGRA_CHIPS:
            return _TEGRA_CHIPS[int(number)], shown(soc_id, root)
    for node, soc in _NPU_NODES.items():
        for place in ("sys/class/devfreq", "sys/bus/platform/devices"):
            if (root / place / node).exists():
                return soc, shown(root / place / node, root)
    return "", ""


def jetson_linux(root: Path) -> tuple[str, str]:
    """Version of Jetson Linux (L4T) such as ``36.4.3``, and where it says so."""
    release = root / "etc/nv_tegra_release"
    found = _RELEASE.search(read_text(release))
    if found is not None:
        return f"{found[1]}.{found[2]}", shown(release, root)
    packages = root / "var/lib/dpkg/status"
    version = _PACKAGE.search(read_bytes(packages))
    if version is not None:
        return version[1].decode("ascii"), shown(packages, root)
    return "", ""


def _strings(file: Path) -> list[str]:
    """Strings of a property, which end with NUL bytes."""
    text = read_bytes(file).decode("utf-8", errors="replace")
    return [part.strip() for part in text.split("\0") if part.strip()]
