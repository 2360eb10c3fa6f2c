"""Audio decoded while the next patch is computed: same samples, same ends, nothing left behind."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from watched_backend import StopRule, WatchedBackend, never

from device_profiles.catalog import load_profile
from device_profiles.schema import Profile
from edge_runtime.ahead import Ahead
from edge_runtime.cancel import CancelToken
from edge_runtime.errors import BackendError, MemoryBudgetError
from edge_runtime.runtime_choice import overlaps
from edge_runtime.voice import Voice

WAIT = 20.0
NAME = "boardvoice-ahead"
Open = Callable[..., tuple[Voice, WatchedBackend]]


def profile(overlap: bool | str) -> Profile:
    base = load_profile("generic-x86-64").model_dump()
    base["runtime"]["overlap_vae"] = overlap
    return Profile.model_validate(base)


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == NAME]


def eventually(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + WAIT
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


@pytest.fixture
def open_voice(f32_bundle: Path) -> Open:
    def make(
        stop: StopRule = never, overlap: bool = True, bundle: Path = f32_bundle
    ) -> tuple[Voice, WatchedBackend]:
        backend = WatchedBackend(stop)
        return Voice.load(
            bundle, backend=backend, verify=False, profile=profile(overlap)
        ), backend

    return make


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    gc.collect()
    assert not threads()


@pytest.mark.parametrize("weights", ["f32", "int8"])
@pytest.mark.parametrize("recipe", ["tiny", "noise-block"])
def test_overlapped_and_serial_speech_are_the_same_bits(
    open_voice: Open, make_bundle, recipe: str, weights: str
) -> None:
    tone = (np.sin(np.arange(12_000) / 9).astype(np.float32) * 0.3, 16_000)
    arguments = {"seed": 3, "max_len": 6, "prompt_audio": tone, "prompt_text": "well"}
    said = []
    for overlap in (False, True):
        voice, _ = open_voice(overlap=overlap, bundle=make_bundle(recipe, weights))
        said.append(voice.say("hello world", **arguments))
        assert said[-1].metrics.as_dict()["overlapped"] is overlap
    serial, overlapped = said
    assert np.array_equal(serial.audio, overlapped.audio)
    assert serial.metrics.chunks == overlapped.metrics.chunks
    assert serial.metrics.ms.keys() == overlapped.metrics.ms.keys()


def test_long_texts_and_retries_are_the_same_too(open_voice: Open) -> None:
    arguments = {"seed": 3, "max_len": 3, "chunk_rows": 150, "retry_ratio": 0.1}
    serial, overlapped = (
        open_voice(overlap=overlap)[0].say("One two. " * 40, **arguments)
        for overlap in (False, True)
    )
    assert serial.metrics.planned_chunks > 1
    assert serial.metrics.chunks == overlapped.metrics.chunks
    assert np.array_equal(serial.audio, overlapped.audio)


@pytest.mark.parametrize("stop_after", [3, None])
def test_the_same_graphs_run_as_often(open_voice: Open, stop_after: int | None) -> None:
    def stop(runs: int) -> bool:
        return stop_after is not None and runs > stop_after

    counts = []
    for overlap in (False, True):
        voice, backend = open_voice(stop, overlap)
        voice.say("hello world", seed=1, max_len=9, retry_badcase=False)
        counts.append(backend.watch.runs)
    assert counts[0] == counts[1]


def test_a_patch_is_decoded_while_the_next_one_is_computed(open_voice: Open) -> None:
    voice, backend = open_voice()
    stream = voice.stream("hello world", seed=1)
    next(stream)
    decoding = threading.Event()
    backend.watch.after_run = (
        lambda name: decoding.set() if name == "vae_decoder" else None
    )
    next(stream)
    flows = backend.watch.runs["flow"]
    assert decoding.is_set()
    # Nobody asks for the third patch, and it is computed all the same; the fourth is not.
    assert eventually(lambda: backend.watch.runs["flow"] == 9 * 3)
    assert flows >= 9 * 2
    time.sleep(0.1)
    assert backend.watch.runs["flow"] == 9 * 3
    stream.close()


def test_the_first_chunk_has_the_machine_to_itself(open_voice: Open) -> None:
    voice, backend = open_voice()
    stream = voice.stream("hello world", seed=1)
    next(stream)
    time.sleep(0.1)
    assert dict(backend.watch.runs) == {
        "flow_time": 1, "lm": 1, "flow_condition": 1, "flow": 9, "vae_decoder": 1,
    }  # fmt: skip
    stream.close()


def test_closing_ends_the_thread_within_an_evaluation(open_voice: Open) -> None:
    voice, backend = open_voice()
    stream = voice.stream("hello world", seed=1)
    next(stream)
    reached, go_on = threading.Event(), threading.Event()

    def hold(name: str) -> None:
        if backend.watch.runs["flow"] == 9 * 2 + 4 and name == "flow":
            reached.set()
            assert go_on.wait(WAIT)

    backend.watch.after_run = hold
    next(stream)
    assert reached.wait(WAIT)
    threading.Timer(0.2, go_on.set).start()
    stream.close()
    assert not threads()
    assert backend.watch.runs["flow"] == 9 * 2 + 4
    assert stream.metrics.stop_reason == "cancelled"
    assert [chunk.patches for chunk in stream.metrics.chunks] == [2]
    assert voice.say("hello", seed=1, max_len=1).metrics.patches == 1


def test_a_stream_closed_before_its_last_chunk_was_not_spoken_to_its_end(
    open_voice: Open,
) -> None:
    voice, backend = open_voice()
    stream = voice.stream("hello world", seed=1, max_len=3)
    next(stream)
    next(stream)
    assert eventually(lambda: backend.watch.runs["flow"] == 9 * 3)
    stream.close()
    assert stream.metrics.chunks[0].stop_reason == "cancelled"
    assert stream.metrics.chunks[0].patches == 2


def test_a_forgotten_stream_leaves_no_thread_and_no_buffers(open_voice: Open) -> None:
    voice, _ = open_voice()
    stream = voice.stream("hello world", seed=1)
    next(stream)
    next(stream)
    assert threads()
    del stream
    gc.collect()
    assert not threads()
    assert voice.say("hello", seed=1, max_len=1).metrics.patches == 1


def test_a_cancelled_run_ends_within_a_patch(open_voice: Open) -> None:
    voice, backend = open_voice()
    token = CancelToken()
    said = voice.say(
        "hello " * 5, seed=1, cancel=token,
        progress=lambda progress: token.cancel() if progress.patches == 3 else None,
    )  # fmt: skip
    assert said.stop_reason == "cancelled"
    assert said.metrics.patches in (3, 4)
    assert backend.watch.runs["flow"] <= 9 * 5
    assert len(said.audio) == said.metrics.patches * 7680


@pytest.mark.parametrize("graph", ["lm", "flow", "patch_encoder", "vae_decoder"])
@pytest.mark.parametrize("run", [1, 3])
def test_what_fails_in_either_thread_is_raised_to_the_caller(
    open_voice: Open, graph: str, run: int
) -> None:
    voice, backend = open_voice()

    def fail(name: str) -> None:
        if name == graph and backend.watch.runs[graph] == run:
            raise BackendError(f"{graph} broke", remedy="")

    backend.watch.after_run = fail
    with pytest.raises(BackendError, match=f"{graph} broke"):
        voice.say("hello world", seed=1, max_len=9)
    assert not threads()
    backend.watch.after_run = lambda name: None
    assert voice.say("hello", seed=1, max_len=2).metrics.patches == 2
    assert voice.kv_bytes() <= 64 << 20


def test_a_refusal_of_the_guard_reaches_the_caller(
    open_voice: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    voice, backend = open_voice()
    guard = voice.resources.guard
    real, where = guard.check, []

    def check(purpose: str) -> None:
        if purpose == "Speaking" and backend.watch.runs["flow"] >= 9 * 3:
            where.append(threading.current_thread().name)
            raise MemoryBudgetError(
                "no room", remedy="", needed=1, available=0, limited_by="a test"
            )
        real(purpose)

    monkeypatch.setattr(guard, "check", check)
    stream = voice.stream("hello world", seed=1)
    with pytest.raises(MemoryBudgetError, match="no room"):
        list(stream)
    assert where == [NAME]
    assert stream.metrics.patches == 3, "what was computed before was handed out"
    assert not threads()


def test_a_stream_may_be_read_by_another_thread(open_voice: Open) -> None:
    voice, _ = open_voice()
    said = voice.say("hello world", seed=1, max_len=5)
    stream = voice.stream("hello world", seed=1, max_len=5)
    pieces = [next(stream)]
    reader = threading.Thread(target=lambda: pieces.extend(stream))
    reader.start()
    reader.join(WAIT)
    assert np.array_equal(np.concatenate(pieces), said.audio)


@pytest.mark.parametrize("overlap", [True, False])
def test_an_interpreter_with_a_stream_left_open_ends(f32_bundle: Path, overlap: bool) -> None:
    code = (
        "import sys; from pathlib import Path; from edge_runtime.voice import Voice\n"
        "from device_profiles.catalog import load_profile; from device_profiles.schema import *\n"
        "base = load_profile('generic-x86-64').model_dump()\n"
        f"base['runtime'] |= {{'overlap_vae': {overlap}, 'threads': 1}}\n"
        "voice = Voice.load(sys.argv[1], profile=Profile.model_validate(base))\n"
        "stream = voice.stream('hello world', seed=1, min_len=50)\n"
        "print(sum(len(next(stream)) for _ in range(2)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(f32_bundle)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) == 2 * 7680


@pytest.mark.parametrize(
    ("cpus", "threads", "spinning", "beside"),
    [(1, 1, False, False), (2, 2, False, True), (2, 2, True, False), (2, 1, True, True)],
)
def test_the_rule_wants_time_that_no_thread_uses(
    cpus: int, threads: int, spinning: bool, beside: bool
) -> None:
    assert overlaps(cpus, threads, spinning) is beside


def test_auto_leaves_other_back_ends_alone(f32_bundle: Path) -> None:
    asked = Voice.load(f32_bundle, backend=WatchedBackend(), verify=False, profile=profile("auto"))
    assert not asked.resources.runtime.overlap_vae
    for wanted in (True, False):
        voice = Voice.load(f32_bundle, verify=False, profile=profile(wanted))
        assert voice.resources.runtime.overlap_vae is wanted


def count(upto: int, done: list[int]) -> Iterator[int]:
    for number in range(upto):
        done.append(number)
        yield number


def test_ahead_is_one_item_ahead_and_no_more() -> None:
    done: list[int] = []
    ahead = Ahead(count(9, done), lambda: None)
    assert next(ahead) == 0
    time.sleep(0.05)
    assert done == [0]
    for number in range(1, 5):
        assert next(ahead) == number
        assert eventually(lambda number=number: done == list(range(number + 2)))
        time.sleep(0.02)
        assert len(done) == number + 2
    ahead.close()
    ahead.close()
    assert list(ahead) == []
    assert not threads()


def test_ahead_ends_when_its_items_do() -> None:
    assert list(Ahead(count(0, []), lambda: None)) == []
    assert list(Ahead(count(1, []), lambda: None)) == [0]
    assert list(Ahead(count(7, []), lambda: None)) == list(range(7))


def test_ahead_raises_what_its_items_raise_once() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise KeyboardInterrupt

    ahead = Ahead(items(), lambda: None)
    assert next(ahead) == 1
    with pytest.raises(KeyboardInterrupt):
        next(ahead)
    assert list(ahead) == []


def test_closing_ahead_interrupts_a_long_step() -> None:
    token = CancelToken()

    def items() -> Iterator[int]:
        yield 0
        while not token.cancelled:
            time.sleep(0.005)
        yield 1

    ahead = Ahead(items(), token.cancel)
    next(ahead)
    ahead._shared.permits.release()
    ahead.close()
    assert not threads()


def test_a_token_counts_its_parent_cancelled() -> None:
    parent = CancelToken()
    child = CancelToken(parent)
    child.cancel()
    assert child.cancelled
    assert not parent.cancelled
    other = CancelToken(parent)
    parent.cancel()
    assert other.cancelled
