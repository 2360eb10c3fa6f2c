"""The model: reading weights and cache, then multiplying, then all the rest. See docs/plan.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from edge_runtime.bench.work import Work
from edge_runtime.plan.kernels import ATTENTION, CONVOLUTIONS, OTHER, weight_bytes
from edge_runtime.plan.request import Attention, FamilyPlan, PlannedRun
from edge_runtime.plan.speeds import Place, Speeds

# Counts one run of a graph.
Count = Callable[[PlannedRun], Work]


@dataclass(frozen=True)
class Times:
    """Milliseconds of a run, by what takes them.

    Attributes:
        memory: Reading weights.
        compute: Products, convolutions.
        attention: Attention over the KV cache, and copying it when it grows.
        other: Norms, activations, quantizing, calls.
    """

    memory: float = 0.0
    compute: float = 0.0
    attention: float = 0.0
    other: float = 0.0

    @property
    def total(self) -> float:
        """All of them."""
        return self.memory + self.compute + self.attention + self.other

    def plus(self, more: Times, times: float) -> Times:
        """These and another run's, several times."""
        return Times(
            self.memory + more.memory * times,
            self.compute + more.compute * times,
            self.attention + more.attention * times,
            self.other + more.other * times,
        )


@dataclass(frozen=True)
class ComponentEstimate:
    """One component.

    Attributes:
        name: As the metrics name it.
        place: Where it is computed.
        per: Once per patch, or once before the first.
        ms: Milliseconds each time.
        memory_ms: Of them, reading weights.
        compute_ms: Of them, products and convolutions.
        attention_ms: Of them, the KV cache.
        other_ms: Of them, all else.
        gflop: Operations in products and convolutions, in billions.
        weight_mb: Weights read.
        kv_mb: Cache read and copied.
        at_best: True where nothing is known but the hardware's peaks: a lower bound.
    """

    name: str
    place: Place
    per: Literal["request", "patch"]
    ms: float
    memory_ms: float
    compute_ms: float
    attention_ms: float
    other_ms: float
    gflop: float
    weight_mb: float
    kv_mb: float
    at_best: bool


@dataclass(frozen=True)
class Estimate:
    """Expected times.

    Attributes:
        components: By component.
        first_audio_ms: From the call to the first samples.
        ms_per_patch: From patch to patch afterwards.
        rtf: Time over audio of the whole request.
        at_best: Whether any component's is a lower bound.
    """

    components: tuple[ComponentEstimate, ...]
    first_audio_ms: float
    ms_per_patch: float
    rtf: float
    at_best: bool


def estimate(
    plan: FamilyPlan, count: Count, speeds_for: Callable[[PlannedRun], Speeds], patches: int
) -> Estimate:
    """Estimate a request.

    Args:
        plan: What would run.
        count: Counts one run of a graph.
        speeds_for: Speeds where a run is computed, the same for all of a component.
        patches: Patches of the reply.
    """
    first = patch = request = 0.0
    grouped: dict[tuple[str, Literal["request", "patch"]], list[tuple[PlannedRun, Work]]] = {}
    for run in plan.runs:
        work = count(run)
        total = run.times * _once(run, work, speeds_for(run)).total
        first += total if run.before_audio else 0.0
        patch += total if run.per == "patch" else 0.0
        request += total if run.per == "request" else 0.0
        grouped.setdefault((run.component, run.per), []).append((run, work))
    components = tuple(
        _component(name, per, runs, speeds_for(runs[0][0])) for (name, per), runs in grouped.items()
    )
    wall = first + patch * (patches - 1)
    return Estimate(
        components=components,
        first_audio_ms=round(first, 1),
        ms_per_patch=round(patch, 1),
        rtf=round(wall / (patches * plan.patch_seconds * 1000), 3),
        at_best=any(component.at_best for component in components),
    )


def _once(run: PlannedRun, work: Work, speeds: Speeds) -> Times:
    if run.graph in speeds.known_ms:
        return Times(compute=speeds.known_ms[run.graph])
    return run_times(work, run.attention, speeds)


def run_times(work: Work, attention: Attention, speeds: Speeds) -> Times:
    """Times of one run.

    Reading weights and multiplying add up, as was measured; a single row's product is one pass
    over its weights, bound by one or the other. Accelerators, of which only peaks are known, are
    taken to do both at once.
    """
    memory = compute = 0.0
    products_bytes = float(0)
    products_macs: dict[str, int] = {}
    for product, times in work.products.items():
        size = weight_bytes(product.format, product.inputs, product.outputs)
        products_bytes += size * times
        macs = product.rows * product.inputs * product.outputs
        products_macs[product.format] = products_macs.get(product.format, 0) + macs * times
        read = _held(size, product.format, product.inputs, product.outputs, speeds) / speeds.memory
        multiplied = 2 * macs / speeds.ops(product.format, product.rows)
        if product.rows == 1 or speeds.at_best:
            # The longer one counts, the other is hidden behind it.
            read, multiplied = (read, 0.0) if read >= multiplied else (0.0, multiplied)
        memory += read * times
        compute += multiplied * times
    convolution_bytes = max(work.weight_bytes - products_bytes, 0.0)
    convolution_macs = work.macs.get("f32", 0) - products_macs.get("f32", 0)
    read = convolution_bytes / speeds.memory
    share = 1.0 if speeds.at_best else CONVOLUTIONS
    multiplied = 2 * convolution_macs / (speeds.large["f32"] * share)
    if speeds.at_best:
        read, multiplied = (read, 0.0) if read >= multiplied else (0.0, multiplied)
    memory, compute = memory + read, compute + multiplied
    cache = (attention.read_bytes + attention.copied_bytes) / speeds.memory
    scores = attention.ops / (speeds.large["f32"] * (1.0 if speeds.at_best else ATTENTION))
    attended = max(cache, scores) if speeds.at_best else cache + scores
    other = 0.0 if speeds.at_best else (OTHER - 1) * (memory + compute)
    return Times(*(1000 * each for each in (memory, compute, attended, other)))


def _held(size: float, format_: str, inputs: int, outputs: int, speeds: Speeds) -> float:
    """Bytes of a weight as the place holds it."""
    blocks = "-" in format_ and speeds.place != "rknn"
    return weight_bytes("f16", inputs, outputs) if speeds.f16 and not blocks else size


def reformatted(work: Work, formats: Mapping[str, str]) -> Work:
    """The same work with other weight formats.

    Args:
        work: Work of one run.
        formats: Other format by format.
    """
    changed = Work(dict(work.macs), work.weight_bytes, uncounted=work.uncounted)
    for product, times in work.products.items():
        other = formats.get(product.format, product.format)
        new = type(product)(other, product.rows, product.inputs, product.outputs)
        changed.products[new] += times
        if other != product.format:
            macs = product.rows * product.inputs * product.outputs * times
            changed.macs[product.format] -= macs
            changed.macs[other] = changed.macs.get(other, 0) + macs
            sizes = (
                weight_bytes(each, product.inputs, product.outputs)
                for each in (other, product.format)
            )
            changed.weight_bytes += int((next(sizes) - next(sizes)) * times)
    return changed


def _component(
    name: str,
    per: Literal["request", "patch"],
    runs: Iterable[tuple[PlannedRun, Work]],
    speeds: Speeds,
) -> ComponentEstimate:
    times = Times()
    flop = size = cache = 0.0
    for run, work in runs:
        times = times.plus(_once(run, work, speeds), run.times)
        flop += 2 * sum(work.macs.values()) * run.times
        size += work.weight_bytes * run.times
        cache += (run.attention.read_bytes + run.attention.copied_bytes) * run.times
    return ComponentEstimate(
        name=name,
        place=speeds.place,
        per=per,
        ms=round(times.total, 2),
        memory_ms=round(times.memory, 2),
        compute_ms=round(times.compute, 2),
        attention_ms=round(times.attention, 2),
        other_ms=round(times.other, 2),
        gflop=round(flop / 1e9, 3),
        weight_mb=round(size / 1e6, 2),
        kv_mb=round(cache / 1e6, 2),
        at_best=speeds.at_best,
    )
