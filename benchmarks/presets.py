"""How far presets, and what else was tried, are from `quality`. Prints a Markdown table.

    python benchmarks/presets.py --bundle BUNDLE [--patches 40] [--tried]

`quality` speaks some sentences; every other way of solving then gets the same conditioning,
previous patch and noise for each patch (teacher-forced), so that only the solver differs.
Whole patches are timed as well: each preset speaks in turn, --rounds times; medians.
With --tried also what is no preset: other numbers of steps, and guidance that is skipped or whose
unguided half is kept from an earlier evaluation. Distances of seeded weights say little: their
velocity field is not a trained one's.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edge_runtime.bench.measure import BenchPlan, sample_run
from edge_runtime.cancel import CancelToken
from edge_runtime.loader import LoadOptions, family_module, open_device
from edge_runtime.noise import SeededNoise
from edge_runtime.presets import PRESETS
from edge_runtime.speech import SpeechMetrics, SpeechOptions
from edge_runtime.voice import Voice
from edge_runtime.voxcpm2.flow import FlowSolver
from edge_runtime.voxcpm2.model import VoxCpm2Model
from edge_runtime.voxcpm2.prompt import VoicePrompt
from edge_runtime.voxcpm2.vae import VaeDecoder

FloatArray = npt.NDArray[np.float32]
TEXTS = (
    "Now serving number forty two at counter seven.",
    "The next train to the city leaves at half past nine.",
    "Please take your card and your receipt.",
)
_TIMED = 8
# What the second half of guidance is at an evaluation: computed, kept, or left out.
Half = Callable[[int, int], str]


class Teacher:
    """Solves as `quality` does and keeps what went in and came out."""

    def __init__(self, inner: FlowSolver) -> None:
        self._inner = inner
        self.calls: list[tuple[FloatArray, FloatArray, FloatArray, FloatArray]] = []

    def solve(
        self, mu: FloatArray, cond: FloatArray, noise: FloatArray, cancel: CancelToken | None = None
    ) -> FloatArray | None:
        """See `FlowSolver.solve`."""
        patch = self._inner.solve(mu, cond, noise, cancel)
        if patch is not None:
            self.calls.append((mu.copy(), cond.copy(), noise.copy(), patch.copy()))
        return patch


class PartlyGuided(FlowSolver):
    """Computes the unguided half at some evaluations only."""

    def __init__(self, model: VoxCpm2Model, options: SpeechOptions, half: Half) -> None:
        graphs = (model.spec, model._flow, model._flow_time, model._flow_condition)
        how = {"steps": options.euler_steps, "even": options.even}
        super().__init__(*graphs, cfg=options.cfg, **how)
        self._alone = FlowSolver(*graphs, cfg=1.0, **how)
        self._half = half
        self._index, self._now, self._both = 0, "compute", self._estimator
        self._estimator = self

    def solve(
        self, mu: FloatArray, cond: FloatArray, noise: FloatArray, cancel: CancelToken | None = None
    ) -> FloatArray | None:
        """See `FlowSolver.solve`."""
        self._index = 0
        return super().solve(mu, cond, noise, cancel)

    def run(self) -> None:
        """Stands in for the estimator's binding: one evaluation."""
        schedule = self._schedule
        count = len(schedule.dt) - schedule.zero_steps
        self._now = self._half(self._index, count)
        self._index += 1
        if self._now == "compute":
            self._both.run()
            return
        alone = self._alone
        for name in ("_x", "_time", "_cond_tokens"):
            getattr(alone, name)[...] = getattr(self, name)
        alone._mu[0] = self._mu[0]
        alone._estimator.run()
        self._velocity[0] = alone._velocity[0]

    def _guided(self) -> FloatArray:
        return self._velocity[0].copy() if self._now == "leave" else super()._guided()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--patches", type=int, default=40, help="most patches per sentence")
    parser.add_argument("--all-patches", action="store_true", help="never stop before --patches")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--rounds", type=int, default=3, help="runs of 8 patches per preset")
    parser.add_argument("--tried", action="store_true")
    arguments = parser.parse_args()
    bundle, resources = open_device(
        arguments.bundle, LoadOptions(threads=arguments.threads, verify=False)
    )
    model = VoxCpm2Model(bundle, resources)
    calls = [list(_taught(model, text, index, arguments)) for index, text in enumerate(TEXTS)]
    truth = [[call[3] for call in each] for each in calls]
    heard = [_decoded(model, patches) for patches in truth]
    count = sum(map(len, calls))
    kind = "seeded" if bundle.manifest.synthetic else "trained"
    print(f"\n{bundle.manifest.name}, {bundle.manifest.weights}, {kind} weights, {count} patches\n")
    print("| solver | evaluations | solver, ms | latent SNR, dB | log-spectral distance, dB |")
    print("|---|---|---|---|---|")
    for name, solver, evaluations in _solvers(model, tried=arguments.tried):
        for mu, cond, noise, _ in calls[0][:2]:
            solver.solve(mu, cond, noise)
        start = time.perf_counter()
        found = [
            [_solved(solver, mu, cond, noise) for mu, cond, noise, _ in each] for each in calls
        ]
        spent = (time.perf_counter() - start) * 1000 / count
        snr = _snr(found, truth)
        pairs = zip([_decoded(model, each) for each in found], heard, strict=True)
        distance = np.mean([_spectral_distance(one, other) for one, other in pairs])
        shown = "same bits" if np.isinf(snr) else f"{snr:.1f}"
        print(f"| {name} | {evaluations} | {spent:.1f} | {shown} | {distance:.2f} |")
        sys.stdout.flush()
    whole = family_module(bundle).load(bundle, resources)
    _time_patches(Voice(whole, bundle.manifest, resources), arguments.rounds)


def _time_patches(voice: Voice, rounds: int) -> None:
    """A table of whole patches, after the first audio, with everything that goes beside."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in PRESETS}
    for number in range(rounds + 1):
        for name in PRESETS:
            plan = BenchPlan(TEXTS[0], patches=_TIMED, options=SpeechOptions(preset=name))
            run = sample_run(voice, plan)
            # The first round warms up.
            found[name] += zip(run.patch_ms, run.patch_cpu_s, strict=True) if number else []
    print("\n| preset | ms per patch | CPU-s per patch | patches |\n|---|---|---|---|")
    for name, patches in found.items():
        wall, cpu = (statistics.median(each) for each in zip(*patches, strict=True))
        print(f"| {name} | {wall:.0f} | {cpu:.3f} | {len(patches)} |")


def _solvers(model: VoxCpm2Model, *, tried: bool) -> Iterator[tuple[str, FlowSolver, str]]:
    for name in PRESETS:
        options = SpeechOptions(preset=name)
        yield f"**{name}**", model.solver(options), str(options.euler_steps - 1)
    if not tried:
        return
    for preset, shape in (("quality", "official"), ("fast", "even")):
        for steps in (9, 8, 7, 6, 5, 4, 3):
            if (options := SpeechOptions(preset=preset, steps=steps)).euler_steps != (
                PRESETS[preset].steps
            ):
                yield f"{shape} schedule, {steps} steps", model.solver(options), str(steps - 1)
    halves: dict[str, Half] = {
        "unguided half at every second evaluation, kept between": (
            lambda index, _: "keep" if index % 2 else "compute"
        ),
        "no guidance in the first half": (
            lambda index, count: "leave" if index < count // 2 else "compute"
        ),
        "no guidance in the second half": (
            lambda index, count: "leave" if index >= count // 2 else "compute"
        ),
        "no guidance in the last evaluation": (
            lambda index, count: "leave" if index == count - 1 else "compute"
        ),
    }
    for name, half in halves.items():
        single = sum(half(index, 9) != "compute" for index in range(9))
        solver = PartlyGuided(model, SpeechOptions(), half)
        yield f"quality, {name}", solver, f"{9 - single} + {single} single"


def _taught(
    model: VoxCpm2Model, text: str, seed: int, arguments: argparse.Namespace
) -> Iterator[tuple[FloatArray, FloatArray, FloatArray, FloatArray]]:
    least = arguments.patches if arguments.all_patches else 2
    options = SpeechOptions(max_len=arguments.patches, min_len=least)
    teacher = Teacher(model.solver(options))
    metrics = SpeechMetrics(seed, model.sample_rate, model.patch_seconds)
    _, audio = model.speak(
        text, VoicePrompt(), options, teacher, SeededNoise(seed), metrics, CancelToken()
    )
    for _ in audio:
        pass
    yield from teacher.calls


def _solved(solver: FlowSolver, mu: FloatArray, cond: FloatArray, noise: FloatArray) -> FloatArray:
    patch = solver.solve(mu, cond, noise)
    assert patch is not None, "nobody cancels"
    return patch


def _decoded(model: VoxCpm2Model, patches: list[FloatArray]) -> FloatArray:
    vae = VaeDecoder(model._vae_decoder, model.spec, SeededNoise(0))
    return np.concatenate([vae.decode(patch) for patch in patches])


def _snr(found: list[list[FloatArray]], truth: list[list[FloatArray]]) -> float:
    true = np.concatenate([np.stack(each) for each in truth]).astype(np.float64)
    error = np.concatenate([np.stack(each) for each in found]) - true
    power = np.square(error).sum()
    return float(10 * np.log10(np.square(true).sum() / power)) if power else float("inf")


def _spectral_distance(one: FloatArray, other: FloatArray) -> float:
    """Root mean square over frequencies of the difference in dB, averaged over 32 ms frames."""
    return float(np.sqrt(np.square(_spectra(one) - _spectra(other)).mean(axis=1)).mean())


def _spectra(audio: FloatArray, size: int = 512, hop: int = 128) -> FloatArray:
    frames = np.lib.stride_tricks.sliding_window_view(audio, size)[::hop] * np.hanning(size)
    spectra: FloatArray = 10 * np.log10(np.abs(np.fft.rfft(frames)) ** 2 + 1e-8)
    return spectra


if __name__ == "__main__":
    main()
