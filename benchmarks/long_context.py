"""Cost of a patch against the rows before it, and against the rows there is room for.

    python benchmarks/long_context.py --bundle BUNDLE [--rows 100 500 1000 2000] [--patches 8]

Random rows stand in for a prefix; every patch is computed as in a request (flow, patch encoder, LM
step, audio decoder). All cases run in turn, --rounds times; medians over all patches. Others
on the machine lengthen wall time, hardly CPU time.
"""

from __future__ import annotations

import argparse
import statistics
import time
from itertools import product
from pathlib import Path

import numpy as np

from edge_runtime.cancel import CancelToken
from edge_runtime.kv_cache import KVCache
from edge_runtime.loader import LoadOptions, open_device
from edge_runtime.noise import SeededNoise
from edge_runtime.speech import SpeechMetrics, SpeechOptions
from edge_runtime.voxcpm2.decode import PatchDecoder, PatchLimit
from edge_runtime.voxcpm2.lm import LanguageModel
from edge_runtime.voxcpm2.model import VoxCpm2Model
from edge_runtime.voxcpm2.prompt import Prefix, VoicePrompt
from edge_runtime.voxcpm2.vae import VaeDecoder


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--rows", type=int, nargs="+", default=[100, 500, 1000, 2000])
    parser.add_argument("--patches", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    bundle, resources = open_device(
        arguments.bundle, LoadOptions(threads=arguments.threads, verify=False)
    )
    model = VoxCpm2Model(bundle, resources)
    largest = model.kv_shape.max_rows
    least = max(arguments.rows) + arguments.patches
    # Rows before the first patch, and rows there is room for.
    cases = [(rows, model.kv_shape.capacity(rows + arguments.patches)) for rows in arguments.rows]
    cases += [(arguments.rows[0], room) for room in (model.kv_shape.capacity(least), largest)]
    found: dict[tuple[int, int], list[tuple[float, ...]]] = {case: [] for case in cases}
    for number, case in product(range(arguments.rounds + 1), found):
        times = _patches(model, *case, arguments.patches)
        # The first round warms up.
        found[case] += times if number else []
    print("| rows before | room for | ms per patch | to line 1 | CPU-s | to line 1 | LM step, ms |")
    print("|---" * 7 + "|")
    first: tuple[float, ...] = ()
    for (rows, room), times in found.items():
        medians = tuple(statistics.median(each) for each in zip(*times, strict=True))
        first = first or medians
        grown = [
            f"{100 * (now / then - 1):+.1f} %" for now, then in zip(medians, first, strict=True)
        ]
        print(
            f"| {rows} | {room} | {medians[0]:.1f} | {grown[0]} | {medians[1]:.3f} | {grown[1]} "
            f"| {medians[2]:.1f} |"
        )


def _patches(model: VoxCpm2Model, rows: int, room: int, count: int) -> list[tuple[float, ...]]:
    """Of each patch after the first: wall ms, CPU-s, and the LM step's ms."""
    options = SpeechOptions()
    metrics = SpeechMetrics(0, model.sample_rate, model.patch_seconds)
    cache = KVCache(model.kv_shape, room, pool=model.pool)
    lm = LanguageModel(model._lm, model.spec, cache)
    decoder = PatchDecoder(model.spec, lm, model.solver(options), model._patch_encoder, metrics)
    noise = SeededNoise(0)
    vae = VaeDecoder(model._vae_decoder, model.spec, noise)

    def prefill(lm: LanguageModel, _prefix: Prefix, cancel: CancelToken) -> bool:
        values = np.random.default_rng(0).standard_normal((rows, model.spec.hidden), np.float32)
        return lm.prefill(values, np.zeros(rows, np.float32), cancel)

    prefix = model.prefixes.build("a", VoicePrompt())
    times: list[tuple[float, ...]] = []
    before, spent, step = 0.0, 0.0, 0.0
    for index, (patch, _) in enumerate(
        decoder.patches(
            prefix, prefill, PatchLimit(count + 1, "max_len"), count + 1, noise, CancelToken()
        )
    ):
        vae.decode(patch)
        now, cpu = time.perf_counter(), time.process_time()
        total = metrics.ms.get("lm_step", 0.0)
        if index:
            times.append(((now - before) * 1000, cpu - spent, total - step))
        before, spent, step = now, cpu, total
    lm.release()
    return times


if __name__ == "__main__":
    main()
