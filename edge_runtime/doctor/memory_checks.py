"""Memory as the guard sees it, and swap."""

from __future__ import annotations

from device_profiles.probes.files import read_text
from edge_runtime.bundle import Bundle
from edge_runtime.doctor.finding import Finding, Status
from edge_runtime.doctor.footprint import Footprint
from edge_runtime.doctor.scene import Scene
from edge_runtime.errors import BoardvoiceError
from edge_runtime.loader import LoadOptions, memory_settings
from edge_runtime.memory.guard import MARGIN_BYTES
from edge_runtime.memory.limits import current_limits

_MIB = 1 << 20


def check_memory(scene: Scene, bundle: Bundle | None) -> list[Finding]:
    """Whether what a bundle needs is below the tightest limit."""
    try:
        limits = current_limits(memory_settings(scene.profile, LoadOptions()), scene.root)
    except BoardvoiceError as error:
        return [Finding("memory", "fail", error.message, "environment", error.remedy)]
    hard = [limit for limit in limits if not limit.soft]
    evidence = "; ".join(f"{one.name}: {one.available // _MIB} MiB left" for one in limits)
    if not hard:
        return [Finding("memory", "skipped", "no limit is known here", "/proc/meminfo")]
    # Mapped files are dropped under pressure, so only address space would count them.
    tightest = next((one for one in hard if not one.mappings_count), hard[0])
    spare = tightest.available - MARGIN_BYTES
    found = f"{max(spare, 0) // _MIB} MiB by {tightest.name}"
    if bundle is None:
        status: Status = "ok" if spare > 0 else "fail"
        return [Finding("memory", status, found, evidence, "" if spare > 0 else _MORE)]
    need = Footprint.of(bundle, scene.profile, scene.state, scene.root)
    wants = f"the bundle needs about {need.speaking // _MIB} MiB"
    if need.speaking > spare and not (need.packing and need.packing <= spare):
        return [Finding("memory", "fail", f"{found}; {wants}", evidence, _MORE)]
    if need.packing > spare:
        return [
            Finding(
                "memory", "warn",
                f"{found}; preparing needs {need.packing // _MIB} MiB, so it runs unprepared",
                evidence, "Prepare it while other programs are ended, or raise the limit.",
            )
        ]  # fmt: skip
    if need.packing:
        wants = f"preparing needs {need.packing // _MIB} MiB once, and speaking far less"
    return [Finding("memory", "ok", f"{found}; {wants}", evidence)]


_MORE = "Raise the limit, end other programs, or export the bundle with smaller weights."


def check_swap(scene: Scene) -> list[Finding]:
    """Whether swap is on something slow."""
    lines = read_text(scene.root / "proc/swaps").splitlines()[1:]
    devices = [line.split()[0] for line in lines if line.split()]
    if not devices:
        return [Finding("swap", "ok", "none", "/proc/swaps")]
    words = ", ".join(devices)
    if any("mmcblk" in device for device in devices):
        return [
            Finding(
                "swap", "warn", f"{words}: on a memory card", "/proc/swaps",
                "It is slow and wears the card: swap on NVMe, or not at all.",
            )
        ]  # fmt: skip
    if scene.is_jetson and any("zram" in device for device in devices):
        return [
            Finding(
                "swap", "warn", f"{words}: compressing takes CPU time when memory is short",
                "/proc/swaps", "sudo systemctl disable nvzramconfig, and swap on NVMe instead.",
            )
        ]  # fmt: skip
    return [Finding("swap", "ok", words, "/proc/swaps")]
