"""Attempts at a chunk that runs too long for its text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from watched_backend import WatchedBackend, never

from edge_runtime.memory.limits import ProcessMemory
from edge_runtime.noise import SeededNoise
from edge_runtime.voice import Voice


@pytest.fixture
def backend() -> WatchedBackend:
    return WatchedBackend(never)


@pytest.fixture
def voice(f32_bundle: Path, backend: WatchedBackend) -> Voice:
    return Voice.load(f32_bundle, backend=backend, verify=False)


class Seeds:
    """Makes noise and remembers the seeds it was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    def __call__(self, seed: int, chunk: int) -> SeededNoise:
        self.asked.append((seed, chunk))
        return SeededNoise(seed, chunk)


@pytest.mark.parametrize("times", [1, 3, 5])
def test_a_model_that_never_stops_is_tried_so_often_and_no_more(voice: Voice, times: int) -> None:
    seeds = Seeds()
    said = voice.say("hi", seed=40, retry_times=times, steps=2, make_noise=seeds)
    assert seeds.asked == [(40 + attempt, 0) for attempt in range(times)]
    assert said.metrics.chunks[0].attempts == times
    assert said.metrics.decoded_patches == times * said.metrics.patches
    assert any(f"each of {times} attempts" in warning for warning in said.metrics.warnings)
    assert said.stop_reason == "cap"


def test_the_shortest_of_bad_attempts_is_returned(f32_bundle: Path) -> None:
    starts = []

    def stop(runs: int) -> bool:
        # Every attempt begins with a prefill; the second one stops a little earlier.
        rows = backend.watch.rows
        if rows[-1] > 1:
            starts.append(runs)
        return len(starts) == 2 and runs - starts[1] >= 13

    backend = WatchedBackend(stop)
    voice = Voice.load(f32_bundle, backend=backend, verify=False)
    said = voice.say("hello world", seed=40, steps=2)
    chunk = said.metrics.chunks[0]
    assert (chunk.tokens, chunk.patches, chunk.seed, chunk.attempts) == (2, 14, 41, 3)
    alone = WatchedBackend(never)
    same = Voice.load(f32_bundle, backend=alone, verify=False)
    again = same.say("hello world", seed=41, steps=2, max_len=14, retry_badcase=False)
    assert np.array_equal(again.audio, said.audio)


def test_a_good_attempt_ends_the_trying_without_a_warning(f32_bundle: Path) -> None:
    starts = []

    def stop(runs: int) -> bool:
        if backend.watch.rows[-1] > 1:
            starts.append(runs)
        return len(starts) == 2

    backend = WatchedBackend(stop)
    voice = Voice.load(f32_bundle, backend=backend, verify=False)
    said = voice.say("hello world", seed=7, steps=2)
    assert said.metrics.chunks[0].attempts == 2
    assert said.metrics.chunks[0].seed == 8
    assert said.stop_reason == "stop"
    assert not any("attempts" in warning for warning in said.metrics.warnings)


def test_too_long_means_six_patches_per_token(f32_bundle: Path) -> None:
    for patches, attempts in ((11, 1), (12, 2)):
        backend = WatchedBackend(lambda runs, last=patches: runs % last == 0)
        voice = Voice.load(f32_bundle, backend=backend, verify=False)
        chunk = voice.say("hello world", seed=7, steps=2, retry_times=2).metrics.chunks[0]
        assert (chunk.tokens, chunk.patches, chunk.attempts) == (2, patches, attempts)


def test_retries_can_be_turned_off(voice: Voice) -> None:
    said = voice.say("hi", seed=40, retry_badcase=False, steps=2)
    assert said.metrics.chunks[0].attempts == 1
    assert not any("attempts" in warning for warning in said.metrics.warnings)


def test_a_stream_never_speaks_a_chunk_again(voice: Voice, backend: WatchedBackend) -> None:
    stream = voice.stream("hi", seed=40, retry_times=5, steps=2)
    count = len(list(stream))
    assert stream.metrics.chunks[0].attempts == 1
    assert stream.metrics.decoded_patches == count == stream.metrics.patches


@pytest.mark.skipif(not ProcessMemory.read().anonymous, reason="no /proc")
def test_many_attempts_take_no_more_memory_than_few(voice: Voice) -> None:
    voice.say("hello world", seed=1, steps=2, retry_times=5)
    before = ProcessMemory.read().anonymous
    for seed in range(3):
        voice.say("hello world", seed=seed, steps=2, retry_times=20)
    assert ProcessMemory.read().anonymous - before < 4 << 20
