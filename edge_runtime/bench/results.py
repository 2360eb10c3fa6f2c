"""Results of a benchmark run, as they are written to JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from device_profiles.plain_file import read_plain_file
from edge_runtime.bench.machine import Machine
from edge_runtime.bundle import describe_errors
from edge_runtime.errors import UsageError
from edge_runtime.output_file import output_file

FORMAT = 1


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Stat(_Frozen):
    """Samples of one figure.

    Attributes:
        count: How many.
        min: Smallest.
        p50: Median.
        p90: 90th percentile.
        p99: 99th percentile.
        max: Largest.
        runs: Median of each run, in order; their spread is the noise between runs.
    """

    count: int
    min: float
    p50: float
    p90: float
    p99: float
    max: float
    runs: tuple[float, ...]

    @staticmethod
    def of(runs: Iterable[Sequence[float]]) -> Stat | None:
        """Samples run by run; None when there is none."""
        filled = [run for run in runs if len(run)]
        if not filled:
            return None
        samples = np.concatenate([np.asarray(run, np.float64) for run in filled])
        low, p50, p90, p99, high = np.percentile(samples, (0, 50, 90, 99, 100)).tolist()
        return Stat(
            count=len(samples), min=_round(low), p50=_round(p50), p90=_round(p90),
            p99=_round(p99), max=_round(high),
            runs=tuple(_round(float(np.median(run))) for run in filled),
        )  # fmt: skip


class Probe(_Frozen):
    """What the machine can do at best, with this many threads.

    Attributes:
        threads: Threads used.
        read_gbs: GB/s of reading memory.
        gflops: GFLOP/s of large matrix products, by weight format.
    """

    threads: int
    read_gbs: float
    gflops: dict[str, float]


class Reached(_Frozen):
    """Work of one occurrence of a component against the machine's limit.

    Attributes:
        gflop: 2 × multiply-adds / 1e9, by weight format.
        weight_mb: MB of weights read.
        gflops: GFLOP/s reached, at the median time.
        gbs: GB/s of weights read, at the median time.
        limit: What bounds it: ``compute`` or ``memory``.
        limit_ms: Least time by the probe: the longer of computing and reading.
        fraction: ``limit_ms`` over the median time.
        kernels_ms: What its products with weight matrices take alone, with the same rows and
            their weights read from memory; None where that was not measured.
        uncounted: Products whose size is not known, and which are left out.
    """

    gflop: dict[str, float]
    weight_mb: float
    gflops: float
    gbs: float
    limit: Literal["compute", "memory"]
    limit_ms: float
    fraction: float
    kernels_ms: float | None = None
    uncounted: int = 0


class Component(_Frozen):
    """One component of the run.

    Attributes:
        per: What its times are counted by: every ``patch``, or every ``request``.
        ms: Wall milliseconds.
        reached: Its work; None where it runs no graph or the work is not known.
    """

    per: Literal["patch", "request"]
    ms: Stat
    reached: Reached | None = None


class Cold(_Frozen):
    """A fresh process whose files the kernel was asked to drop from memory first.

    Attributes:
        import_ms: Starting Python and importing the package.
        load_ms: Loading the bundle.
        first_audio_ms: From the request to the first samples.
        start_to_audio_ms: From the start of the process to the first samples.
        disk_read_mb: MB that the process read from disk; None where the kernel does not tell.
    """

    import_ms: float
    load_ms: float
    first_audio_ms: float
    start_to_audio_ms: float
    disk_read_mb: float | None


class Setup(_Frozen):
    """What was run, and how.

    Attributes:
        boardvoice: Version.
        family: Model family.
        bundle: Name of the voice.
        bundle_sha256: Hash of the manifest.
        bundle_mb: Size of its files.
        weights: Weight plan.
        synthetic: Whether the weights are seeded noise.
        profile: Device profile.
        threads: Threads per session.
        spinning: Whether threads spin between the nodes of a run.
        overlap_vae: Whether a patch is decoded to audio while the next one is computed.
        cores: CPUs that threads run on; empty for all.
        chosen_by: Who chose these four: ``profile``, ``options`` or ``tuned``.
        kv_dtype: Storage of keys and values.
        prepared: Whether packed weights are mapped from prepared files.
        text: What was said.
        reference: Whether a reference was given.
        preset: Preset of the options.
        steps: Euler steps.
        cfg: Guidance.
        patches: Patches per run.
        runs: Runs.
        prefix_rows: KV rows before the first patch.
        patch_seconds: Audio per patch.
    """

    boardvoice: str
    family: str
    bundle: str
    bundle_sha256: str
    bundle_mb: float
    weights: str
    synthetic: bool
    profile: str
    threads: int
    spinning: bool
    overlap_vae: bool = False
    cores: tuple[int, ...] = ()
    chosen_by: str = "profile"
    kv_dtype: str
    prepared: bool
    text: str
    reference: bool
    preset: str = "quality"
    steps: int
    cfg: float
    patches: int
    runs: int
    prefix_rows: int
    patch_seconds: float


class BenchResult(_Frozen):
    """One benchmark.

    Attributes:
        format: Version of this layout.
        taken: Date, UTC.
        machine: Where.
        setup: What and how.
        probe: The machine's limits.
        load_ms: Loading with warm files.
        first_audio_ms: From the call to the first samples.
        patch_ms: Wall time from one patch of audio to the next.
        cpu_s_per_patch: CPU-seconds from one patch of audio to the next, all threads.
        rtf: Wall time of a run over its audio.
        peak_rss_anon_mb: Largest anonymous memory of a run.
        kv_mb: KV cache of a run.
        components: By name, as in the metrics of a run.
        cold: The first request of a fresh process; None when it was left out.
    """

    format: Literal[1] = 1
    taken: str
    machine: Machine
    setup: Setup
    probe: Probe
    load_ms: float
    first_audio_ms: Stat
    patch_ms: Stat
    cpu_s_per_patch: Stat
    rtf: Stat
    peak_rss_anon_mb: float
    kv_mb: float
    components: dict[str, Component]
    cold: Cold | None = None

    @staticmethod
    def load(path: Path) -> BenchResult:
        """Read a result file.

        Raises:
            UsageError: It cannot be read or is none.
        """
        try:
            data = json.loads(read_plain_file(path).decode("utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise UsageError(
                f"{path} is no benchmark result: {error}.",
                remedy="Name a file that 'boardvoice bench --json FILE' wrote.",
            ) from error
        if isinstance(data, dict) and data.get("format") != FORMAT:
            raise UsageError(
                f"{path}: format {data.get('format')!r} is not {FORMAT}.",
                remedy="Measure again with this version.",
            )
        try:
            return BenchResult.model_validate(data)
        except ValidationError as error:
            raise UsageError(
                f"{path}: {describe_errors(error)}.", remedy="Measure again with this version."
            ) from error

    def save(self, path: Path) -> None:
        """Write it.

        Raises:
            OutputError: It cannot be written.
        """
        with output_file(path) as stream:
            stream.write(self.model_dump_json(indent=1).encode() + b"\n")


def _round(value: float) -> float:
    """Four significant digits and more are noise; keep files readable."""
    return float(f"{value:.5g}")
