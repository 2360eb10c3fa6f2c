"""Clocks: governors, switched-off CPUs, power mode, heat."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from device_profiles.probes.files import numbers, read_text
from edge_runtime.doctor.finding import Finding
from edge_runtime.doctor.scene import Scene

_CPUS = "sys/devices/system/cpu"
_SLOW = ("powersave", "conservative")
_HOT = 80.0


def check_power(scene: Scene) -> list[Finding]:
    """What keeps the board from its full speed; none of it keeps it from speaking."""
    findings = [*_governor(scene), *_clocks(scene), *_switched_off(scene)]
    if scene.is_jetson:
        findings.append(_power_mode(scene.root))
    return [*findings, *_heat(scene.root)]


def _governor(scene: Scene) -> list[Finding]:
    places = sorted((scene.root / _CPUS / "cpufreq").glob("policy*/scaling_governor"))
    places += sorted((scene.root / "sys/class/devfreq").glob("*.npu/governor"))
    places += sorted((scene.root / "sys/class/devfreq").glob("dmc/governor"))
    if not places:
        return [Finding("governor", "skipped", "the kernel shows none", f"/{_CPUS}/cpufreq")]
    names = {place: read_text(place) for place in places}
    words = ", ".join(f"{name} ({n}×)" for name, n in Counter(names.values()).most_common())
    evidence = f"/{places[0].relative_to(scene.root)} and {len(places) - 1} more"
    # Intel's and AMD's own drivers call their normal mode powersave.
    x86 = scene.facts.machine in ("x86_64", "AMD64")
    if not x86 and any(name in _SLOW for name in names.values()):
        remedy = "sudo cpupower frequency-set -g performance (or write it to the files)."
        return [Finding("governor", "warn", words, evidence, remedy)]
    remedy = ""
    if not x86 and set(names.values()) != {"performance"}:
        remedy = "'performance' steadies the time per patch; it needs root, and a heat sink."
    return [Finding("governor", "ok", words, evidence, remedy)]


def _clocks(scene: Scene) -> list[Finding]:
    held = []
    for policy in sorted((scene.root / _CPUS / "cpufreq").glob("policy*")):
        most, allowed = (
            read_text(policy / name) for name in ("cpuinfo_max_freq", "scaling_max_freq")
        )
        if most.isdecimal() and allowed.isdecimal() and int(allowed) < int(most):
            held.append(f"{policy.name} {int(allowed) // 1000} of {int(most) // 1000} MHz")
    if not held:
        return []
    return [
        Finding(
            "clocks", "warn", "held below what the CPU can: " + ", ".join(held),
            f"/{_CPUS}/cpufreq/policy*/scaling_max_freq",
            "Choose another power mode, or raise scaling_max_freq (root).",
        )
    ]  # fmt: skip


def _switched_off(scene: Scene) -> list[Finding]:
    present, online = (
        numbers(read_text(scene.root / _CPUS / name)) for name in ("present", "online")
    )
    off = sorted(set(present) - set(online)) if online else []
    if not off:
        return []
    remedy = "sudo nvpmodel -m 0" if scene.is_jetson else "echo 1 to cpu*/online (root)."
    return [
        Finding(
            "CPUs", "warn", f"{', '.join(map(str, off))} of {len(present)} are switched off",
            f"/{_CPUS}/online", remedy,
        )
    ]  # fmt: skip


def _power_mode(root: Path) -> Finding:
    status = read_text(root / "var/lib/nvpmodel/status")
    found = re.search(r"pmode:\s*0*(\d+)", status)
    if found is None:
        return Finding("power mode", "skipped", "not known here", "/var/lib/nvpmodel/status")
    config = read_text(root / "etc/nvpmodel.conf")
    names = {
        int(number): name
        for number, name in re.findall(r"<\s*POWER_MODEL\s+ID=(\d+)\s+NAME=(\S+)\s*>", config)
    }
    mode = int(found[1])
    name = names.get(mode, f"mode {mode}")
    best = next((number for number, one in names.items() if one.startswith("MAXN")), 0)
    if mode != best:
        return Finding(
            "power mode", "warn", name, "/var/lib/nvpmodel/status, /etc/nvpmodel.conf",
            f"sudo nvpmodel -m {best}, then sudo jetson_clocks.",
        )  # fmt: skip
    return Finding("power mode", "ok", name, "/var/lib/nvpmodel/status, /etc/nvpmodel.conf")


def _heat(root: Path) -> list[Finding]:
    hot = []
    for zone in sorted((root / "sys/class/thermal").glob("thermal_zone*")):
        text = read_text(zone / "temp")
        if text.isdecimal() and int(text) / 1000 >= _HOT:
            hot.append(f"{read_text(zone / 'type') or zone.name} {int(text) / 1000:.0f} °C")
    if not hot:
        return []
    return [
        Finding(
            "heat", "warn", ", ".join(hot), "/sys/class/thermal/thermal_zone*/temp",
            "Boards slow down near here: use a heat sink or a fan.",
        )
    ]  # fmt: skip
