"""From a board's figures to the speeds that a plan divides by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from device_profiles.combinations import NPU_CORES
from device_profiles.figures import Figure, FiguresSection
from device_profiles.schema import Profile
from edge_runtime.plan.kernels import OF_INT8, OF_PEAK, Kernel, kernel_of, row_share

Place = Literal["cpu", "cuda", "tensorrt", "rknn"]
# Where neither the profile nor the user says how many there are.
_THREADS = 4
# Highest clock of the RK3588's NPU in vendor kernels.
_NPU_HZ = 1e9


class UnknownSpeedError(ValueError):
    """A figure that the estimate needs is missing; the text names it."""


@dataclass(frozen=True)
class Speeds:
    """What one place computes with.

    Attributes:
        place: Which one.
        memory: Bytes per second to and from memory.
        large: Operations per second of large products, by kernel.
        at_best: True where nothing is known but the hardware's peaks.
        f16: Whether weights that are not in blocks are held as f16.
        used: Figures used: key, value and source.
        assumed: What was assumed on the way.
        known_ms: Milliseconds of one run, by graph, where they were counted elsewhere.
    """

    place: Place
    memory: float
    large: Mapping[Kernel, float]
    at_best: bool = False
    f16: bool = False
    used: tuple[tuple[str, float, str], ...] = ()
    assumed: tuple[str, ...] = field(default=())
    known_ms: Mapping[str, float] = field(default_factory=dict)

    def ops(self, format_: str, rows: int) -> float:
        """Operations per second of a product of so many rows."""
        kernel = kernel_of(format_)
        return self.large[kernel] * (1.0 if self.at_best else row_share(kernel, rows))


def speeds_of(profile: Profile, place: Place, threads: int | None = None) -> Speeds:
    """Speeds of a place on a board.

    Args:
        profile: The board's.
        place: Where it is computed.
        threads: Takes the place of the profile's.

    Raises:
        UnknownSpeedError: The profile lacks a figure.
    """
    if place == "cpu":
        return _cpu(profile, threads)
    return _npu(profile) if place == "rknn" else _gpu(profile, place)


def _cpu(profile: Profile, threads: int | None) -> Speeds:
    figures, wanted = profile.figures, profile.runtime.threads
    own = None if wanted == "auto" else wanted
    assumed = []
    memory = _needed(figures, "memory_gb_s")
    f32, int8 = _needed(figures, "cpu_f32_gflops"), _needed(figures, "cpu_int8_gops")
    count = threads or own or _THREADS
    if threads is None and own is None and "thread" in (f32.per, int8.per):
        assumed.append(f"{_THREADS} threads")
    if threads is not None and own is None and "board" in (f32.per, int8.per):
        assumed.append("all cores, whatever --threads says: the profile's figures are the board's")

    def speed(figure: Figure, kernel: Kernel) -> float:
        if figure.per == "thread":
            scale = float(count)
        else:
            scale = min(1.0, count / own) if own is not None else 1.0
        reached = OF_PEAK[kernel] if figure.peak else 1.0
        few = row_share(kernel, figure.rows) if figure.rows is not None else 1.0
        return figure.value * 1e9 * scale * reached / few

    large: dict[Kernel, float] = {"f32": speed(f32, "f32"), "int8": speed(int8, "int8")}
    used = ["memory_gb_s", "cpu_f32_gflops", "cpu_int8_gops"]
    blocks: tuple[tuple[Kernel, str, Figure | None], ...] = (
        ("int8-blocks", "cpu_int8_blocks_gops", figures.cpu_int8_blocks_gops),
        ("int4-blocks", "cpu_int4_blocks_gops", figures.cpu_int4_blocks_gops),
    )
    for kernel, key, figure in blocks:
        if figure is None:
            large[kernel] = large["int8"] * OF_INT8[kernel]
        else:
            large[kernel] = speed(figure, kernel)
            used.append(key)
    if f32.peak or int8.peak:
        assumed.append(
            f"{OF_PEAK['f32']:.0%} of the f32 peak and {OF_PEAK['int8']:.0%} of the int8 peak, "
            "where a figure is a peak"
        )
    return Speeds(
        "cpu", memory.value * 1e9, large, used=_used(figures, used), assumed=tuple(assumed)
    )


def _gpu(profile: Profile, place: Place) -> Speeds:
    figures = profile.figures
    memory, int8 = _needed(figures, "gpu_memory_gb_s"), _needed(figures, "gpu_int8_tops")
    f32 = _needed(figures, "gpu_f32_gflops").value * 1e9
    # Tensor cores multiply f16 at half the speed of int8.
    half = int8.value * 1e12 / 2
    precise = profile.flow.precision == "f32"
    fast = f32 if precise else half
    large: dict[Kernel, float] = {
        "f32": f32, "int8": fast, "int8-blocks": half, "int4-blocks": half
    }  # fmt: skip
    used = _used(figures, ["gpu_memory_gb_s", "gpu_int8_tops", "gpu_f32_gflops"])
    assumed = ("f16 on tensor cores at half the int8 figure",)
    return Speeds(place, memory.value * 1e9, large, True, True, used, assumed)


def _npu(profile: Profile) -> Speeds:
    figures = profile.figures
    memory, int8 = _needed(figures, "memory_gb_s"), _needed(figures, "npu_int8_tops")
    cores, wanted = NPU_CORES.get(profile.soc, 1), profile.flow.npu_cores
    taken = 1 if wanted == "auto" else len(wanted.split("_"))
    half = profile.flow.precision != "int8"
    speed = int8.value * 1e12 * taken / cores / (2 if half else 1)
    large: dict[Kernel, float] = dict.fromkeys(("f32", "int8", "int8-blocks", "int4-blocks"), speed)
    assumed = (
        f"{taken} of {cores} NPU cores" + (", f16 at half the int8 figure" if half else ""),
        "the NPU reads memory as fast as the CPU",
    )
    used = _used(figures, ["memory_gb_s", "npu_int8_tops"])
    return Speeds("rknn", memory.value * 1e9, large, True, half, used, assumed)


def with_cycles(speeds: Speeds, graph: str, cycles: int) -> Speeds:
    """The NPU's speeds, with what its compiler says of one graph's run."""
    used = ("npu_mcycles", cycles / 1e6, "Rockchip's compiler, of the bundle's own model")
    clock = f"an NPU at {_NPU_HZ / 1e9:g} GHz that waits for nothing but what its compiler counts"
    return replace(
        speeds,
        known_ms={graph: cycles / _NPU_HZ * 1000},
        used=(*speeds.used, used),
        assumed=(*speeds.assumed, clock),
    )


def _needed(figures: FiguresSection, key: str) -> Figure:
    figure: Figure | None = getattr(figures, key)
    if figure is None:
        raise UnknownSpeedError(f"the profile has no figure {key}")
    return figure


def _used(figures: FiguresSection, keys: list[str]) -> tuple[tuple[str, float, str], ...]:
    found = ((key, getattr(figures, key)) for key in keys)
    return tuple((key, figure.value, figure.source) for key, figure in found if figure is not None)
