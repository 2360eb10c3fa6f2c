"""What the service may do and see: nothing that speaking does not need."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from boardvoice.service.unit_text import Entry, paths
from device_profiles.schema import Profile

# Names of /proc/devices, since a unit takes no wildcards in paths: render nodes are of drm.
_SOUND = ("char-alsa rw",)
_NPU = ("char-drm rw", "char-dma_heap rw", "/dev/rknpu rw")
_GPU = ("char-nvidia* rw", "char-nvhost* rw", "char-nvgpu* rw", "/dev/nvmap rw", "char-drm rw")
# Emptied or covered for the service; what it needs from below is put in place again.
COVERED = tuple(map(Path, ("/home", "/root", "/run/user", "/tmp", "/var/tmp")))


def has_npu(profile: Profile) -> bool:
    """Whether the flow is meant for Rockchip's NPU."""
    return profile.flow.place == "rknn"


def has_gpu(profile: Profile) -> bool:
    """Whether a GPU is among the providers."""
    return any(entry.name != "cpu" for entry in profile.providers)


def groups(profile: Profile) -> list[str]:
    """Groups that own the devices."""
    more = ["render", "video"] if has_npu(profile) or has_gpu(profile) else []
    return ["audio", *more]


def everywhere(profile: Profile) -> list[Entry]:
    """What a user's own service can have as well."""
    jit = has_npu(profile) or has_gpu(profile)
    return [
        ("NoNewPrivileges", "yes"),
        ("LockPersonality", "yes"),
        *([("", "The libraries of the accelerator make code as they run.")] if jit else []),
        ("MemoryDenyWriteExecute", "no" if jit else "yes"),
        ("RestrictAddressFamilies", "AF_UNIX AF_INET AF_INET6"),
        ("RestrictNamespaces", "yes"),
        ("RestrictRealtime", "yes"),
        ("RestrictSUIDSGID", "yes"),
        ("SystemCallArchitectures", "native"),
        ("SystemCallFilter", "@system-service"),
        ("SystemCallFilter", "~@privileged @resources"),
        ("", "Threads are kept on the strong cores."),
        ("SystemCallFilter", "sched_setaffinity"),
        ("SystemCallErrorNumber", "EPERM"),
        ("UMask", "0077"),
        ("LimitCORE", "0"),
    ]


def system_only(
    profile: Profile, *, shown: Sequence[Path], written: Path | None, loopback: bool
) -> list[Entry]:
    """What takes the system's own manager.

    Args:
        profile: The board's.
        shown: Files and folders that are read although they lie below a covered one.
        written: The one folder that is written, where it is not systemd's own for the service.
        loopback: Whether only this machine may connect.
    """
    devices = [*_SOUND]
    devices += _NPU if has_npu(profile) else ()
    devices += _GPU if has_gpu(profile) else ()
    entries: list[Entry] = [
        ("CapabilityBoundingSet", ""),
        ("AmbientCapabilities", ""),
        ("DevicePolicy", "closed"),
        *(("DeviceAllow", device) for device in dict.fromkeys(devices)),
        ("ProtectSystem", "strict"),
        ("ProtectHome", "tmpfs"),
        ("PrivateTmp", "yes"),
    ]
    if shown:
        entries.append(("BindReadOnlyPaths", paths(shown)))
    if written is not None:
        inside = any(written.is_relative_to(folder) for folder in COVERED)
        entries.append(("BindPaths" if inside else "ReadWritePaths", paths([written])))
    entries += [
        ("", "The guard reads /proc/meminfo, and the profile is found in /proc and /sys."),
        ("ProcSubset", "all"),
        ("ProtectProc", "invisible"),
        ("ProtectClock", "yes"),
        ("ProtectControlGroups", "yes"),
        ("ProtectHostname", "yes"),
        ("ProtectKernelLogs", "yes"),
        ("ProtectKernelModules", "yes"),
        ("ProtectKernelTunables", "yes"),
        ("RemoveIPC", "yes"),
        ("KeyringMode", "private"),
    ]
    if loopback:
        entries += [("IPAddressDeny", "any"), ("IPAddressAllow", "localhost")]
    return entries
