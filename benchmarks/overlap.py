"""One patch with the audio decoded in turn and beside, threads spinning or not. Prints a table.

    python benchmarks/overlap.py --bundle BUNDLE [--patches 10] [--rounds 3] [--neighbour]

The settings run in turn, each in a process of its own, as often as --rounds says; medians.
With --neighbour another process wants one CPU all the time.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from device_profiles.catalog import usable_cpus
from edge_runtime.backends.placed import PlacedBackend
from edge_runtime.backends.protocol import Graph

TEXT = "Now serving number forty two at counter seven."
# Sessions' threads, the VAE decoder's threads, whether threads spin, whether it is beside.
SETTINGS = tuple(itertools.product(("all",), ("all", "1"), (False, True), (False, True)))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--patches", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--neighbour", action="store_true")
    parser.add_argument("--settings", type=json.loads, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.settings:
        print(json.dumps(_speak(arguments.bundle, arguments.patches, *arguments.settings)))
        return
    cpus = usable_cpus()
    settings = [
        (cpus, int(vae) if vae != "all" else cpus, spinning, overlap)
        for _, vae, spinning, overlap in SETTINGS
        if overlap or vae == "all"
    ]
    if cpus > 1:
        settings += [(1, 1, False, False), (1, 1, False, True)]
    found: dict[tuple[object, ...], list[dict[str, object]]] = {each: [] for each in settings}
    with _neighbour(arguments.neighbour):
        for _, setting in itertools.product(range(arguments.rounds), settings):
            command = [sys.executable, __file__, *sys.argv[1:], "--settings", json.dumps(setting)]
            out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            found[setting].append(json.loads(out.splitlines()[-1]))
    print(
        "\n| threads | VAE threads | spinning | VAE | ms per patch | CPU-s per patch | "
        "first audio, ms | flow, ms | LM, ms | VAE, ms | same audio |\n" + "|---" * 11 + "|"
    )
    reference = found[settings[0]][0]["audio"]
    for (threads, vae, spinning, overlap), runs in found.items():
        row = [threads, vae, "yes" if spinning else "no", "beside" if overlap else "in turn"]
        for name, form in (
            ("patch_ms", ".0f"), ("cpu_s", ".3f"), ("first_ms", ".0f"), ("flow", ".0f"),
            ("lm_step", ".0f"), ("vae_decode", ".0f"),
        ):  # fmt: skip
            row.append(format(statistics.median(run[name] for run in runs), form))
        row.append("yes" if all(run["audio"] == reference for run in runs) else "no")
        print("| " + " | ".join(map(str, row)) + " |")


@dataclass(frozen=True)
class _TwoPools:
    """A back end whose VAE decoder has its own number of threads."""

    inner: PlacedBackend
    vae_threads: int

    def load(self, path: Path) -> Graph:
        backend = self.inner
        if path.name.startswith("vae_decoder"):
            backend = replace(backend, cpu=replace(backend.cpu, threads=self.vae_threads))
        return backend.load(path)


def _speak(
    bundle: Path, patches: int, threads: int, vae: int, spinning: bool, overlap: bool
) -> dict[str, object]:
    from device_profiles.catalog import load_profile
    from edge_runtime.loader import LoadOptions, family_module, open_device
    from edge_runtime.voice import Voice

    profile = load_profile(None)
    runtime = profile.runtime.model_copy(update={"spinning": spinning, "overlap_vae": overlap})
    options = LoadOptions(
        profile=profile.model_copy(update={"runtime": runtime}), threads=threads, verify=False
    )
    opened, resources = open_device(bundle, options)
    resources = replace(resources, backend=_TwoPools(resources.backend, vae))
    voice = Voice(family_module(opened).load(opened, resources), opened.manifest, resources)
    voice.say(TEXT, seed=1, min_len=2, max_len=2, retry_badcase=False)
    speech = voice.say(TEXT, seed=1, min_len=patches, max_len=patches, retry_badcase=False)
    metrics = speech.metrics
    each = {name: value / patches for name, value in metrics.ms.items()}
    return {
        **each,
        "patch_ms": (metrics.wall_s * 1000 - metrics.first_audio_ms) / (patches - 1),
        "cpu_s": metrics.cpu_s / patches,
        "first_ms": metrics.first_audio_ms,
        "audio": hashlib.sha256(speech.audio.tobytes()).hexdigest(),
    }


@contextmanager
def _neighbour(wanted: bool) -> Iterator[None]:
    process = multiprocessing.get_context("spawn").Process(target=_busy, daemon=True)
    if wanted:
        process.start()
    yield
    if wanted:
        process.terminate()
        process.join()


def _busy() -> None:
    parent = os.getppid()
    while os.getppid() == parent:
        sum(range(10_000))


if __name__ == "__main__":
    main()
