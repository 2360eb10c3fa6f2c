"""Options mean what they mean officially: guidance, steps, and everything that ends a run."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from parity_cases import MODES, TOLERANCE, Options
from parity_run import Run, error, errors

pytest.importorskip("torch")
pytest.importorskip("librosa")
pytest.importorskip("transformers")
if importlib.util.find_spec("voxcpm") is None:
    pytest.skip("voxcpm is not installed", allow_module_level=True)

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")

ZERO_SHOT = MODES["zero-shot"]


@pytest.mark.parametrize("recipe", ["tiny", "mean-mode"])
@pytest.mark.parametrize(
    "options",
    [
        Options(cfg=1.0),
        Options(cfg=0.5),
        Options(cfg=3.5),
        Options(steps=2),
        Options(steps=4),
        Options(steps=25),
        Options(steps=30, min_len=19, max_len=20),
        # The first step whose count of zero-velocity steps is two is 49.
        Options(steps=48, min_len=9, max_len=10),
        Options(steps=49, min_len=9, max_len=10),
        Options(steps=50, min_len=9, max_len=10),
        Options(steps=100, min_len=4, max_len=5),
    ],
    ids=lambda options: f"cfg{options.cfg}-steps{options.steps}",
)
def test_guidance_and_steps_give_the_official_values(
    recipe: str,
    options: Options,
    ours: Callable,
    officials: Callable,
    record_property: Callable,
) -> None:
    seed, theirs = officials(recipe).settled(ZERO_SHOT, options)
    run = ours(recipe).run(ZERO_SHOT, options, seed)
    found = errors(run, theirs)
    record_property("errors", found)
    assert max(found.values()) <= TOLERANCE, found
    assert (run.streamed == run.audio).all()


class Ending(NamedTuple):
    """A run whose stop head fires more than once, and the patch of the first time that counts."""

    seed: int
    theirs: Run
    first_stop: int


@pytest.fixture(scope="module")
def ending(officials: Callable) -> Ending:
    def fires_twice(run: Run) -> bool:
        return run.stops[6:30].sum() >= 2 and not run.stops[30:].all()

    seed, theirs = officials("tiny").settled(ZERO_SHOT, wanted=fires_twice)
    return Ending(seed, theirs, 3 + int(np.flatnonzero(theirs.stops[3:])[0]))


@pytest.mark.parametrize(
    ("shift", "reason"),
    [("none", "stop"), ("before", "stop"), ("at", "stop"), ("beyond", "max_len")],
)
def test_min_len_holds_a_stop_back_as_officially(
    shift: str, reason: str, ending: Ending, ours: Callable, officials: Callable
) -> None:
    min_len = {
        "none": 2,
        "before": ending.first_stop - 1,
        "at": ending.first_stop,
        "beyond": 39,
    }[shift]
    options = Options(min_len=min_len)
    patches = _same_end(ours, officials, ending.seed, options, reason)
    assert (patches == ending.first_stop + 1) == (min_len < ending.first_stop)


def test_max_len_ends_the_run_as_officially(
    ending: Ending, ours: Callable, officials: Callable
) -> None:
    options = Options(min_len=2, max_len=ending.first_stop)
    assert _same_end(ours, officials, ending.seed, options, "max_len") == ending.first_stop


def test_stop_in_the_last_patch_allowed_counts_as_a_stop(
    ending: Ending, ours: Callable, officials: Callable
) -> None:
    options = Options(min_len=2, max_len=ending.first_stop + 1)
    assert _same_end(ours, officials, ending.seed, options, "stop") == ending.first_stop + 1


@pytest.mark.parametrize("ratio", [0.01, 0.13, 0.5])
def test_cap_by_tokens_ends_the_run_as_officially(
    ratio: float, ending: Ending, ours: Callable, officials: Callable
) -> None:
    _same_end(ours, officials, ending.seed, replace(Options(), ratio=ratio), "cap")


def test_prefill_in_pieces_over_a_growing_cache_gives_the_official_values(
    ours: Callable, officials: Callable
) -> None:
    mode, options = MODES["reference-continuation"], Options()
    seed, theirs = officials("tiny").settled(mode, options)
    voice = ours("tiny").load(bucket_rows=16, piece_rows=16)
    run = ours("tiny").run(mode, options, seed, voice=voice)
    assert len(theirs.hidden) > 2 * 16
    assert max(errors(run, theirs).values()) <= TOLERANCE


def _same_end(ours: Callable, officials: Callable, seed: int, options: Options, reason: str) -> int:
    theirs = officials("tiny").run(ZERO_SHOT, options, seed)
    speech = ours("tiny").say(ZERO_SHOT, options, seed)
    assert speech.metrics.patches == len(theirs.latents)
    assert speech.stop_reason == reason
    assert error(speech.audio, theirs.audio) <= TOLERANCE
    return len(theirs.latents)
