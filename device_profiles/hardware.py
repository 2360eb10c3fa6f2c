"""The board itself: its chip, how it is recognized, what it needs and what to know about it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from device_profiles.section import Section

Soc = Literal[
    "any", "x86-64", "tegra194", "tegra234", "tegra264", "rk3588", "rk3582", "rk3576", "rk3566",
    "bcm2712",
]  # fmt: skip


class MatchSection(Section):
    """How a board is recognized. See `device_profiles.choose` for the order.

    Attributes:
        modules: Jetson modules such as ``p3767-0005``.
        compatible: Entries of the device tree's ``compatible`` that name the board.
        soc: Chips, for boards that no profile names.
        cpus: CPUs that the kernel must see.
        memory_mib: Least and most MiB of memory; decides where the rest leaves several.
        cores: CPUs by ``implementer:part`` as in /proc/cpuinfo, all of them.
        flags: CPU flags that must all be there.
        any_flags: CPU flags of which one must be there.
        priority: Decides last; the highest wins.
    """

    modules: tuple[str, ...] = Field((), strict=False)
    compatible: tuple[str, ...] = Field((), strict=False)
    soc: tuple[str, ...] = Field((), strict=False)
    cpus: tuple[int, ...] = Field((), strict=False)
    memory_mib: tuple[int, int] | None = Field(None, strict=False)
    cores: dict[str, int] = Field(default_factory=dict)
    flags: tuple[str, ...] = Field((), strict=False)
    any_flags: tuple[str, ...] = Field((), strict=False)
    priority: int = 0

    @model_validator(mode="after")
    def _ordered(self) -> MatchSection:
        if self.memory_mib is not None and self.memory_mib[0] > self.memory_mib[1]:
            raise ValueError("memory_mib must be the least and the most, in this order")
        return self


class RequiresSection(Section):
    """Oldest versions that work.

    Attributes:
        onnxruntime: ONNX Runtime.
        python: Python.
        l4t: Jetson Linux.
        rknpu_driver: Rockchip's NPU driver.
        librknnrt: Rockchip's NPU runtime.
    """

    onnxruntime: str = Field("1.23", pattern=r"^\d+(\.\d+)*$")
    python: str = Field("3.10", pattern=r"^\d+(\.\d+)*$")
    l4t: str | None = Field(None, pattern=r"^\d+(\.\d+)*$")
    rknpu_driver: str | None = Field(None, pattern=r"^\d+(\.\d+)*$")
    librknnrt: str | None = Field(None, pattern=r"^\d+(\.\d+)*$")
