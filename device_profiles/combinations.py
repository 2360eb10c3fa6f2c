"""Combinations of settings that no board can have."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from device_profiles.schema import Profile

_NVIDIA = ("cpu", "cuda", "tensorrt")
_PROVIDERS = {
    "any": ("cpu",),
    "x86-64": _NVIDIA,
    "tegra194": _NVIDIA,
    "tegra234": _NVIDIA,
    "tegra264": _NVIDIA,
}
NPU_CORES = {"rk3588": 3, "rk3582": 2, "rk3576": 2, "rk3566": 1}
# Chips that run another one's models: an RK3582 is an RK3588 with faulty parts switched off.
_NPU_TARGETS = {"rk3582": "rk3588"}
_DIALECT = {
    "cpu": "ort", "cuda": "ort", "tensorrt": "portable", "rknn": "portable", "rknn-sim": "portable"
}  # fmt: skip
# Rockchip's simulator is a program for PCs.
_SIMULATED_ON = ("any", "x86-64")


def npu_target(soc: str) -> str:
    """Chip that a model for this one's NPU is converted for."""
    return _NPU_TARGETS.get(soc, soc)


def impossible(profile: Profile) -> str:
    """What of a profile contradicts itself or its chip, with what is allowed; empty if nothing."""
    return next(filter(None, (check(profile) for check in _CHECKS)), "")


def _providers(profile: Profile) -> str:
    names = [provider.name for provider in profile.providers]
    allowed = _PROVIDERS.get(profile.soc, ("cpu",))
    for name in names:
        if name not in allowed:
            return (
                f"providers: {name} is impossible with soc {profile.soc}; "
                f"allowed: {', '.join(allowed)}"
            )
    if len(set(names)) != len(names):
        return f"providers: each may be named once, not {', '.join(names)}"
    if names[-1:] != ["cpu"]:
        return "providers: the last must be cpu, which runs what the others cannot"
    return ""


def _flow(profile: Profile) -> str:
    flow, names = profile.flow, [provider.name for provider in profile.providers]
    if flow.place == "rknn":
        if profile.soc not in NPU_CORES:
            return (
                f"flow.place: rknn is impossible with soc {profile.soc}; "
                f"allowed: {', '.join(names)}"
            )
    elif flow.place == "rknn-sim":
        if profile.soc not in _SIMULATED_ON:
            return (
                f"flow.place: rknn-sim is impossible with soc {profile.soc}; "
                f"allowed: {', '.join(names)}"
            )
    elif flow.place not in names:
        return f"flow.place: {flow.place} is not among the providers; allowed: {', '.join(names)}"
    dialect = _DIALECT[flow.place]
    if flow.graphs != dialect:
        return f"flow.graphs: flow.place {flow.place} needs {dialect}, not {flow.graphs}"
    if flow.place == "cpu" and flow.precision is not None:
        return "flow.precision: the CPU follows the bundle's weights; leave it out"
    return ""


def _npu_cores(profile: Profile) -> str:
    wanted = profile.flow.npu_cores
    if wanted == "auto":
        return ""
    if profile.flow.place != "rknn":
        return "flow.npu_cores: only with flow.place rknn"
    cores = NPU_CORES[profile.soc]
    if cores == 1 or any(int(core) >= cores for core in wanted.split("_")):
        return f"flow.npu_cores: soc {profile.soc} has {cores} NPU cores, not {wanted}"
    return ""


def _kv(profile: Profile) -> str:
    first = profile.providers[0].name
    # GroupQueryAttention on CUDA knows f16 and bf16 only.
    if first != "cpu" and profile.kv.dtype != "f16":
        return (
            f"kv.dtype: {profile.kv.dtype} is impossible with provider {first} first; allowed: f16"
        )
    return ""


def _memory(profile: Profile) -> str:
    memory = profile.memory
    if (
        memory.hard_mib is not None
        and memory.soft_mib is not None
        and memory.soft_mib > memory.hard_mib
    ):
        return (
            f"memory.soft_mib: {memory.soft_mib} is above memory.hard_mib; "
            f"allowed: up to {memory.hard_mib}"
        )
    return ""


_CHECKS = (_providers, _flow, _npu_cores, _kv, _memory)
