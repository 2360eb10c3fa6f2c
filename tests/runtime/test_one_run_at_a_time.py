"""Cancelling, several threads, streams that are left behind."""

from __future__ import annotations

import gc
import threading
from pathlib import Path

import numpy as np
import pytest
from watched_backend import WatchedBackend, never

from edge_runtime.cancel import CancelToken
from edge_runtime.errors import CancelledError, UsageError
from edge_runtime.voice import Voice

WAIT = 20.0


@pytest.fixture
def backend() -> WatchedBackend:
    return WatchedBackend(never)


@pytest.fixture
def voice(f32_bundle: Path, backend: WatchedBackend) -> Voice:
    return Voice.load(f32_bundle, backend=backend, verify=False)


def test_a_token_set_in_another_thread_ends_the_run_within_a_patch(
    voice: Voice, backend: WatchedBackend
) -> None:
    token, reached, go_on = CancelToken(), threading.Event(), threading.Event()

    def hold(name: str) -> None:
        if name == "flow" and backend.watch.runs["flow"] == 9 * 2 + 4:
            reached.set()
            assert go_on.wait(WAIT)

    backend.watch.after_run = hold
    said = []
    thread = threading.Thread(
        target=lambda: said.append(voice.say("hello " * 5, seed=1, cancel=token))
    )
    thread.start()
    assert reached.wait(WAIT)
    token.cancel()
    go_on.set()
    thread.join(WAIT)
    assert said[0].stop_reason == "cancelled"
    assert said[0].metrics.patches == 2
    # The third patch ended in the middle of its steps.
    assert backend.watch.runs["flow"] == 9 * 2 + 4
    assert len(said[0].audio) == 2 * 7680
    assert said[0].metrics.chunks[0].stop_reason == "cancelled"


def test_a_stream_ends_after_the_patch_in_which_it_was_cancelled(
    voice: Voice, backend: WatchedBackend
) -> None:
    token = CancelToken()
    stream = voice.stream("hello world", seed=1, cancel=token)
    next(stream)
    token.cancel()
    assert list(stream) == []
    assert stream.metrics.stop_reason == "cancelled"
    assert backend.watch.steps == 0


@pytest.mark.parametrize("audio", [False, True])
def test_a_token_set_beforehand_leaves_nothing_to_return(
    voice: Voice, backend: WatchedBackend, audio: bool
) -> None:
    token = CancelToken()
    token.cancel()
    reference = (np.full(16_000, 0.1, np.float32), 16_000) if audio else None
    with pytest.raises(CancelledError):
        voice.say("hello", seed=1, cancel=token, reference=reference)
    assert not backend.watch.runs["lm"]
    assert voice.say("hello", seed=1, max_len=1).metrics.patches == 1


def test_cancelling_between_chunks_is_not_a_good_end(voice: Voice) -> None:
    token = CancelToken()
    stream = voice.stream("One two. " * 40, seed=1, max_len=2, chunk_rows=150, cancel=token)
    next(stream)
    next(stream)
    token.cancel()
    assert list(stream) == []
    assert [chunk.stop_reason for chunk in stream.metrics.chunks] == ["max_len"]
    assert stream.metrics.stop_reason == "cancelled"


def test_a_second_thread_waits_for_the_first(voice: Voice, backend: WatchedBackend) -> None:
    stream = voice.stream("hello world", seed=1, max_len=3)
    first = next(stream)
    said, started = [], threading.Event()

    def second() -> None:
        started.set()
        said.append(voice.say("hello world", seed=1, max_len=3))

    thread = threading.Thread(target=second)
    thread.start()
    assert started.wait(WAIT)
    thread.join(0.2)
    assert thread.is_alive()
    assert backend.watch.runs["lm"] == 1, "the second run has not begun"
    rest = list(stream)
    thread.join(WAIT)
    assert np.array_equal(np.concatenate([first, *rest]), said[0].audio)


def test_many_threads_each_get_their_own_speech(f32_voice: Voice) -> None:
    alone = {seed: f32_voice.say("hi", seed=seed, max_len=3).audio for seed in range(4)}
    found: dict[int, np.ndarray] = {}

    def run(seed: int) -> None:
        for _ in range(3):
            found[seed] = f32_voice.say("hi", seed=seed, max_len=3).audio

    threads = [threading.Thread(target=run, args=(seed,)) for seed in alone]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert all(np.array_equal(found[seed], alone[seed]) for seed in alone)


def test_a_second_run_in_the_streaming_thread_is_an_error_not_a_deadlock(voice: Voice) -> None:
    stream = voice.stream("hello world", seed=1, max_len=3)
    next(stream)
    with pytest.raises(UsageError, match="still streaming"):
        voice.say("other", seed=1)
    with pytest.raises(UsageError, match="still streaming"):
        next(voice.stream("other", seed=1))
    # Neither harmed the stream.
    assert len(list(stream)) == 2
    voice.say("other", seed=1, max_len=1)


def test_the_thread_that_reads_a_stream_is_the_one_that_must_not_speak(voice: Voice) -> None:
    stream = voice.stream("hello world", seed=1, max_len=4)
    next(stream)
    errors = []

    def read() -> None:
        next(stream)
        try:
            voice.say("other", seed=1)
        except UsageError as error:
            errors.append(error)
        stream.close()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(WAIT)
    assert not thread.is_alive(), "deadlock"
    assert len(errors) == 1


def test_a_stream_that_is_left_behind_frees_the_voice(voice: Voice) -> None:
    stream = voice.stream("hello world", seed=1)
    next(stream)
    del stream
    gc.collect()
    assert voice.say("hello", seed=1, max_len=1).metrics.patches == 1


def test_a_failure_in_the_middle_frees_the_voice(voice: Voice, backend: WatchedBackend) -> None:
    def fail(name: str) -> None:
        if name == "vae_decoder":
            raise RuntimeError("the callback's own")

    backend.watch.after_run = fail
    with pytest.raises(RuntimeError, match="own"):
        voice.say("hello", seed=1, max_len=2)
    backend.watch.after_run = lambda name: None
    assert voice.say("hello", seed=1, max_len=1).metrics.patches == 1


def test_a_progress_callback_that_cancels_ends_the_run(voice: Voice) -> None:
    token = CancelToken()
    said = voice.say("hello " * 4, seed=1, cancel=token, progress=lambda _: token.cancel())
    assert said.stop_reason == "cancelled"
    assert said.metrics.patches == 1
