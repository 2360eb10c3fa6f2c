"""Our side against recorded official runs; needs neither torch nor the official package."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace

import numpy as np
import pytest
from parity_cases import MODES, TOLERANCE, Options, PositionNoise, checkpoint_seed
from parity_golden import CASES, Golden, digest, path_of, read
from parity_run import Run, error


@pytest.fixture(scope="module", params=CASES, ids="/".join)
def golden(request: pytest.FixtureRequest) -> Golden:
    return read(path_of(*request.param))


@pytest.fixture(scope="module")
def run(golden: Golden, ours: Callable) -> Run:
    meta = golden.meta
    assert meta["checkpoint_seed"] == checkpoint_seed(meta["recipe"])
    return ours(meta["recipe"]).run(MODES[meta["mode"]], Options(**meta["options"]), meta["seed"])


def test_run_equals_the_recorded_official_one(
    golden: Golden, run: Run, record_property: Callable
) -> None:
    values = digest(run)
    assert values.keys() == golden.arrays.keys()
    found = {name: error(values[name], golden.arrays[name]) for name in values}
    record_property("errors", found)
    assert len(run.latents) == 40
    assert max(found.values()) <= TOLERANCE, found


def test_stop_decisions_equal_the_recorded_ones(golden: Golden, run: Run) -> None:
    assert (run.stops == (golden.arrays["stop_logits"].argmax(axis=1) == 1)).all()


def test_stream_is_the_whole_reply_bit_for_bit(run: Run) -> None:
    assert (run.streamed == run.audio).all()


def test_unforced_run_ends_at_the_first_recorded_stop(golden: Golden, ours: Callable) -> None:
    meta = golden.meta
    options = replace(Options(**meta["options"]), min_len=2)
    stops = np.flatnonzero(golden.arrays["stop_logits"][3:].argmax(axis=1) == 1)
    speech = ours(meta["recipe"]).say(MODES[meta["mode"]], options, meta["seed"])
    assert speech.metrics.patches == (4 + int(stops[0]) if len(stops) else 40)
    assert speech.stop_reason == ("stop" if len(stops) else "max_len")


def test_recorded_runs_keep_clear_of_every_rounding_edge() -> None:
    for case in CASES:
        meta = read(path_of(*case)).meta
        assert meta["quantizer_margin"] > 2e-4, case
        assert meta["stop_margin"] > 1e-3, case
        assert meta["voxcpm"] == "2.0.3"
        assert meta["options"] == asdict(Options())


def test_golden_files_are_small_and_all_in_use() -> None:
    files = sorted(path_of("x", "x").parent.glob("*.npz"))
    assert files == sorted(path_of(*case) for case in CASES)
    assert sum(file.stat().st_size for file in files) < 600_000


def test_noise_does_not_depend_on_how_it_is_cut() -> None:
    whole, pieces = PositionNoise(3, 2), PositionNoise(3, 2)
    blocks = [whole.decoder((1, 1, 1000 * (1 + block))) for block in range(2)]
    cut: list[list[np.ndarray]] = [[], []]
    for count in (1, 7, 250, 742):
        pieces.patch((16, 4))
        for block in range(2):
            cut[block].append(pieces.decoder((1, 1, count * (1 + block))))
    for block in range(2):
        assert (np.concatenate(cut[block], axis=2) == blocks[block]).all()
