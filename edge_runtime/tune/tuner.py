"""Tunes one bundle on this device, on real patches."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from statistics import median

from device_profiles.cores import usable_cores
from edge_runtime.bench.measure import BenchPlan, sample_run
from edge_runtime.loader import LoadOptions, open_device
from edge_runtime.prepare.key import PreparationKey
from edge_runtime.runtime_choice import RuntimeChoice, profile_choice
from edge_runtime.tune.search import Cost, OnTrial, Runner, search
from edge_runtime.tune.tuned import Tuned, TunedRuntime
from edge_runtime.voice import Voice


def tune_bundle(
    folder: str | Path,
    load: LoadOptions,
    plan: BenchPlan,
    *,
    rounds: int,
    on_trial: OnTrial | None = None,
) -> tuple[Tuned, PreparationKey]:
    """Find the best way to run a bundle here. Nothing is kept yet, see `keep_tuned`.

    Args:
        folder: The bundle.
        load: How to load it; its threads and earlier tuning do not count.
        plan: What to say.
        rounds: Alternating rounds per comparison.
        on_trial: Told what is compared with what.

    Raises:
        BoardvoiceError: As `Voice.load` and `Voice.say`.
    """
    options = replace(load, threads=None, tuned=False)
    # Prepares the bundle, if it is to be, and settles what the device can do.
    bundle, resources = open_device(folder, options)
    key = PreparationKey.of(bundle, kv_dtype=resources.profile.kv.dtype)
    start = profile_choice(resources.profile)
    # Verified a moment ago, and loaded many times.
    options = replace(options, verify=False)

    @contextmanager
    def open_choice(choice: RuntimeChoice) -> Iterator[Runner]:
        voices = [Voice.load_with(folder, replace(options, runtime=choice))]
        yield lambda: run_once(voices[0], plan)
        # Its memory is wanted for the next one.
        voices.clear()
        gc.collect()

    best, trials = search(start, open_choice, rounds=rounds, on_trial=on_trial)
    tuned = Tuned(
        taken=datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        bundle=key.bundle,
        cpu=key.cpu,
        runtime=key.runtime,
        kv_dtype=key.kv_dtype,
        cpus=usable_cores(),
        start=TunedRuntime.of(start),
        choice=TunedRuntime.of(best),
        trials=tuple(trials),
    )
    return tuned, key


def run_once(voice: Voice, plan: BenchPlan) -> Cost:
    """Speak once; the medians are over its patches."""
    run = sample_run(voice, plan)
    return Cost(median(run.patch_ms), median(run.patch_cpu_s))
