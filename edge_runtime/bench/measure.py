"""Measures a bundle on this machine: warm runs by component, one cold run, the machine's limits."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path

from edge_runtime.bench.cold import cold_run
from edge_runtime.bench.machine import Machine
from edge_runtime.bench.probe import probe_machine, product_ms
from edge_runtime.bench.recorder import GraphRun, Recorder, RecordingBackend
from edge_runtime.bench.results import BenchResult, Component, Probe, Reached, Setup, Stat
from edge_runtime.bench.work import Product, Work, graph_work
from edge_runtime.bundle import MANIFEST, Bundle, sha256_of
from edge_runtime.errors import UsageError
from edge_runtime.loader import LoadOptions, family_module, open_device
from edge_runtime.resources import Resources
from edge_runtime.speech import SpeechMetrics, SpeechOptions
from edge_runtime.voice import SpeechStream, Voice

TEXT = "Now serving number forty two at counter seven."
_MB = 1e6
# Told what is being done.
OnStep = Callable[[str], None]


@dataclass(frozen=True)
class BenchPlan:
    """What to measure.

    Attributes:
        text: What to say.
        reference: Audio of a voice, or None.
        patches: Patches per run, 2 or more; the text's own cap may be lower.
        runs: Runs that count; one more comes first, to warm up.
        options: How to speak; lengths, seed and retries are set by the plan.
        cold: Whether to measure a fresh process as well.
        kernels: Whether to measure every product with weights alone as well.
    """

    text: str = TEXT
    reference: str | None = None
    patches: int = 10
    runs: int = 3
    options: SpeechOptions = field(default_factory=SpeechOptions)
    cold: bool = True
    kernels: bool = True

    def __post_init__(self) -> None:
        for name, least in (("patches", 2), ("runs", 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise UsageError(f"{name} is {value!r}.", remedy=f"It must be {least} or more.")

    def speech_options(self) -> SpeechOptions:
        """Options that give every run the same length and the same samples."""
        return replace(
            self.options, seed=0, min_len=self.patches, max_len=self.patches, retry_badcase=False
        )


@dataclass
class RunSamples:
    """Samples of one run.

    Attributes:
        metrics: Its metrics.
        patch_ms: Wall time from patch to patch.
        patch_cpu_s: CPU time from patch to patch.
        per_patch: Milliseconds by component, one value per patch.
        per_request: Milliseconds by component, of what happens before the first patch only.
    """

    metrics: SpeechMetrics
    patch_ms: list[float] = field(default_factory=list)
    patch_cpu_s: list[float] = field(default_factory=list)
    per_patch: dict[str, list[float]] = field(default_factory=dict)
    per_request: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Limits:
    """What the machine can do.

    Attributes:
        probe: Speeds at best.
        times: Milliseconds of products alone; empty when they were not measured.
    """

    probe: Probe
    times: Mapping[Product, float] = field(default_factory=dict)

    def kernels_ms(self, total: Work, occurrences: int) -> float | None:
        """Milliseconds of a component's products alone, per occurrence."""
        if not total.products or not all(product in self.times for product in total.products):
            return None
        spent = sum(self.times[product] * count for product, count in total.products.items())
        return round(spent / occurrences, 4)


def run_bench(
    folder: str | Path, load: LoadOptions, plan: BenchPlan, on_step: OnStep | None = None
) -> BenchResult:
    """Measure a bundle.

    Args:
        folder: The bundle.
        load: How to load it.
        plan: What to measure.
        on_step: Told what is being done.

    Raises:
        BoardvoiceError: As `Voice.load` and `Voice.say`.
    """
    tell = on_step or (lambda _step: None)
    tell("loading")
    # Prepares the bundle if it is to be; that happens once per device and is not counted.
    open_device(folder, load)
    start = time.perf_counter()
    bundle, resources = open_device(folder, load)
    recorder = Recorder()
    watched = replace(resources, backend=RecordingBackend(resources.backend, recorder))
    voice = Voice.of(bundle, watched)
    load_ms = (time.perf_counter() - start) * 1000
    tell("warming up")
    sample_run(voice, plan)
    recorder.take()
    samples = []
    for index in range(plan.runs):
        tell(f"run {index + 1} of {plan.runs}")
        samples.append(sample_run(voice, plan))
    runs = recorder.take()
    setup = _setup(bundle, resources, plan, samples[0].metrics)
    # Its files can be dropped from memory, and its threads do not spin any more.
    del voice, watched
    gc.collect()
    tell("probing the machine")
    work = component_work(bundle, runs, resources.profile.kv.dtype)
    formats = {name for each in work.values() for name in each.macs} | {"f32"}
    probe = probe_machine(formats, setup.threads)
    times: dict[Product, float] = {}
    if plan.kernels:
        tell("measuring products alone")
        products = {product for each in work.values() for product in each.products}
        times = {product: product_ms(product, setup.threads) for product in products}
    cold = None
    if plan.cold:
        tell("cold run")
        cold = cold_run(folder, load, plan.text, plan.reference, plan.speech_options())
    limits = Limits(probe, times)
    return _result(setup, samples, work, limits, load_ms, cold)


def sample_run(voice: Voice, plan: BenchPlan) -> RunSamples:
    """Speak once and take the times of every patch."""
    stream = voice.stream(plan.text, reference=plan.reference, options=plan.speech_options())
    run = RunSamples(stream.metrics)
    with stream:
        _read(stream, run)
    return run


def _read(stream: SpeechStream, run: RunSamples) -> None:
    spans: dict[str, list[float]] = {}
    stream.metrics.spans = spans
    before: dict[str, int] = {}
    wall = cpu = 0.0
    for index, _ in enumerate(stream):
        now, spent = time.perf_counter(), time.process_time()
        if index == 0:
            before = {name: len(values) for name, values in spans.items()}
        else:
            run.patch_ms.append((now - wall) * 1000)
            run.patch_cpu_s.append(spent - cpu)
        wall, cpu = now, spent
    for name, values in spans.items():
        if len(values) == before.get(name):
            run.per_request[name] = sum(values)
        else:
            run.per_patch[name] = values


def component_work(bundle: Bundle, runs: Mapping[GraphRun, int], kv_dtype: str) -> dict[str, Work]:
    """Work by component of all runs together."""
    family = family_module(bundle)
    component_of = getattr(family, "component_of", lambda graph, _shapes: graph)
    files = bundle.graphs(kv_dtype)
    total: dict[str, Work] = {}
    for run, count in runs.items():
        shapes = dict(run.shapes)
        once = graph_work(bundle.path(files[run.graph]), shapes)
        total.setdefault(component_of(run.graph, shapes), Work()).add(once, count)
    return total


def _result(
    setup: Setup,
    samples: list[RunSamples],
    work: Mapping[str, Work],
    limits: Limits,
    load_ms: float,
    cold: object,
) -> BenchResult:
    return BenchResult.model_validate(
        {
            "taken": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
            "machine": Machine.read(),
            "setup": setup,
            "probe": limits.probe,
            "load_ms": round(load_ms, 1),
            "first_audio_ms": Stat.of([run.metrics.first_audio_ms] for run in samples),
            "patch_ms": Stat.of(run.patch_ms for run in samples),
            "cpu_s_per_patch": Stat.of(run.patch_cpu_s for run in samples),
            "rtf": Stat.of([run.metrics.wall_s / run.metrics.audio_s] for run in samples),
            "peak_rss_anon_mb": round(
                max(run.metrics.peak_rss_anon_bytes for run in samples) / _MB, 1
            ),
            "kv_mb": round(max(run.metrics.kv_bytes for run in samples) / _MB, 2),
            "components": dict(_components(samples, work, limits)),
            "cold": cold,
        }
    )


def _components(
    samples: list[RunSamples], work: Mapping[str, Work], limits: Limits
) -> Iterator[tuple[str, Component]]:
    # What happens once comes first; a dictionary keeps the order and drops doubles.
    once = [name for run in samples for name in run.per_request]
    names = dict.fromkeys([*once, *(name for run in samples for name in run.per_patch)])
    for name in names:
        per_patch = any(name in run.per_patch for run in samples)
        runs = [
            run.per_patch.get(name, []) if per_patch
            else [run.per_request[name]] if name in run.per_request else []
            for run in samples
        ]  # fmt: skip
        ms = Stat.of(runs)
        if ms is not None:
            reached = reached_of(work[name], ms, limits) if name in work else None
            yield name, Component(per="patch" if per_patch else "request", ms=ms, reached=reached)


def reached_of(total: Work, ms: Stat, limits: Limits) -> Reached | None:
    """A component's work per occurrence against what the machine can do at best.

    Args:
        total: Work of all occurrences together.
        ms: Their times.
        limits: The machine's.
    """
    probe = limits.probe
    gflop = {name: 2 * macs / ms.count / 1e9 for name, macs in total.macs.items()}
    if not gflop or not ms.p50:
        return None
    weight_gb = total.weight_bytes / ms.count / 1e9
    compute_ms = 1000 * sum(count / probe.gflops[name] for name, count in gflop.items())
    memory_ms = 1000 * weight_gb / probe.read_gbs
    limit_ms = max(compute_ms, memory_ms)
    return Reached(
        gflop={name: round(count, 5) for name, count in gflop.items()},
        weight_mb=round(weight_gb * 1000, 3),
        gflops=round(sum(gflop.values()) / ms.p50 * 1000, 2),
        gbs=round(weight_gb / ms.p50 * 1000, 3),
        limit="compute" if compute_ms >= memory_ms else "memory",
        limit_ms=round(limit_ms, 4),
        fraction=round(limit_ms / ms.p50, 4),
        kernels_ms=limits.kernels_ms(total, ms.count),
        uncounted=total.uncounted,
    )


def _setup(bundle: Bundle, resources: Resources, plan: BenchPlan, metrics: SpeechMetrics) -> Setup:
    manifest, profile = bundle.manifest, resources.profile
    return Setup(
        boardvoice=version("boardvoice"),
        family=manifest.family,
        bundle=manifest.name,
        bundle_sha256=sha256_of(bundle.folder / MANIFEST),
        bundle_mb=round(sum(file.size for file in manifest.files.values()) / _MB, 1),
        weights=manifest.weights,
        synthetic=manifest.synthetic,
        profile=profile.name,
        threads=resources.runtime.threads,
        spinning=resources.runtime.spinning,
        overlap_vae=resources.runtime.overlap_vae,
        cores=resources.runtime.cores,
        chosen_by=resources.runtime.source,
        kv_dtype=profile.kv.dtype,
        prepared=bool(resources.costs),
        text=plan.text,
        reference=plan.reference is not None,
        preset=plan.options.preset,
        steps=plan.options.euler_steps,
        cfg=plan.options.cfg,
        patches=metrics.patches,
        runs=plan.runs,
        prefix_rows=max((chunk.prefix_rows for chunk in metrics.chunks), default=0),
        patch_seconds=metrics.patch_seconds,
    )
