"""Chooses among the ways to run a bundle by alternating runs; knows nothing of how they are run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from device_profiles.cores import big_cores, usable_cores
from edge_runtime.runtime_choice import RuntimeChoice
from edge_runtime.tune.tuned import Trial, TunedRuntime

# A challenger must be this much faster, since runs of one program differ by a few percent ...
FASTER = 0.03
# ... or, while not slower by more than this, ...
AS_FAST = 0.02
# ... use this much less CPU time: others on the device want it too, and it is power.
CHEAPER = 0.10


@dataclass(frozen=True)
class Cost:
    """What one run costs.

    Attributes:
        patch_ms: Wall time per patch.
        cpu_s: CPU-seconds per patch.
    """

    patch_ms: float
    cpu_s: float


Runner = Callable[[], Cost]
# Loads the bundle with a choice and hands out a function that runs it once.
Open = Callable[[RuntimeChoice], AbstractContextManager[Runner]]
OnTrial = Callable[[RuntimeChoice, RuntimeChoice], None]


def search(
    start: RuntimeChoice,
    open_choice: Open,
    *,
    rounds: int,
    root: Path = Path("/"),
    on_trial: OnTrial | None = None,
) -> tuple[RuntimeChoice, list[Trial]]:
    """Find the best choice, one knob after the other: cores and threads, spinning, overlap.

    Args:
        start: What the profile says; kept unless another is better by a margin.
        open_choice: Loads the bundle with a choice.
        rounds: Alternating rounds per comparison.
        root: Where ``sys`` is.
        on_trial: Told what is compared with what, before it is.

    Returns:
        The choice, and what was measured, in order.
    """
    best, trials = start, []
    for knob in (cores_and_threads, spinning, overlap):
        for candidate in knob(best, root):
            if TunedRuntime.of(candidate) == TunedRuntime.of(best):
                continue
            if on_trial is not None:
                on_trial(candidate, best)
            trial = compare(candidate, best, open_choice, rounds)
            trials.append(trial)
            if trial.taken:
                best = candidate
    return best, trials


def cores_and_threads(best: RuntimeChoice, root: Path) -> Iterator[RuntimeChoice]:
    """Every core, one less (others want to run too), half of them; the same of the big ones."""
    usable = usable_cores()
    for cores in (big_cores(usable, root), usable):
        count = len(cores)
        # All usable ones need no affinity.
        named = cores if count < len(usable) else ()
        for threads in dict.fromkeys((count, count - 1, (count + 1) // 2)):
            if threads >= 1:
                yield replace(best, threads=threads, cores=named)


def spinning(best: RuntimeChoice, _root: Path) -> Iterator[RuntimeChoice]:
    """The other way round."""
    yield replace(best, spinning=not best.spinning)


def overlap(best: RuntimeChoice, _root: Path) -> Iterator[RuntimeChoice]:
    """The other way round."""
    yield replace(best, overlap_vae=not best.overlap_vae)


def compare(candidate: RuntimeChoice, best: RuntimeChoice, open_choice: Open, rounds: int) -> Trial:
    """Run both in turn; whoever comes first in one round comes second in the next."""
    new: list[Cost] = []
    old: list[Cost] = []
    with open_choice(candidate) as run_new, open_choice(best) as run_old:
        run_old()
        run_new()
        for index in range(rounds):
            pair = [(run_new, new), (run_old, old)]
            for run, costs in pair if index % 2 else reversed(pair):
                costs.append(run())
    ratios = [a.patch_ms / b.patch_ms for a, b in zip(new, old, strict=True)]
    cpu_ratios = [a.cpu_s / b.cpu_s for a, b in zip(new, old, strict=True) if b.cpu_s]
    cpu_ratio = median(cpu_ratios) if cpu_ratios else 1.0
    return Trial(
        candidate=TunedRuntime.of(candidate),
        beside=TunedRuntime.of(best),
        patch_ms=round(median(cost.patch_ms for cost in new), 3),
        cpu_s_per_patch=round(median(cost.cpu_s for cost in new), 5),
        beside_patch_ms=round(median(cost.patch_ms for cost in old), 3),
        beside_cpu_s_per_patch=round(median(cost.cpu_s for cost in old), 5),
        ratio=round(median(ratios), 4),
        cpu_ratio=round(cpu_ratio, 4),
        rounds=rounds,
        taken=is_better(ratios, cpu_ratio),
    )


def is_better(ratios: list[float], cpu_ratio: float) -> bool:
    """Whether a challenger takes the place.

    Args:
        ratios: Wall time, challenger over the best so far, round by round.
        cpu_ratio: Median ratio of CPU time.
    """
    middle = median(ratios)
    # One disturbed round must not decide, nor may a few lucky ones.
    agreeing = sum(ratio < 1 for ratio in ratios)
    faster = middle < 1 - FASTER and agreeing * 4 >= len(ratios) * 3
    return faster or (middle < 1 + AS_FAST and cpu_ratio < 1 - CHEAPER)
