"""A voice that was used before costs neither the encoder nor its rows again."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from kv_types import KV_TYPES, kv_profile
from watched_backend import WatchedBackend, never

from edge_runtime.kv_cache import KVShape, KVSnapshot
from edge_runtime.memory import malloc
from edge_runtime.memory.limits import MemorySettings
from edge_runtime.voice import Voice
from edge_runtime.voxcpm2.model import VoxCpm2Model
from edge_runtime.voxcpm2.prefix_store import PrefixStore, fingerprint
from edge_runtime.voxcpm2.speaker import Speaker


def clip(seconds: float = 1.0, seed: int = 0) -> tuple[np.ndarray, int]:
    random = np.random.default_rng(seed)
    return random.uniform(-0.4, 0.4, round(seconds * 16_000)).astype(np.float32), 16_000


def model_of(voice: Voice) -> VoxCpm2Model:
    speaker = voice._model
    assert isinstance(speaker, Speaker)
    return speaker._model


@pytest.fixture
def backend() -> WatchedBackend:
    return WatchedBackend(never)


@pytest.fixture
def voice(f32_bundle: Path, backend: WatchedBackend) -> Voice:
    return Voice.load(f32_bundle, backend=backend, verify=False)


def say(voice: Voice, text: str = "hello", **options: object) -> np.ndarray:
    return voice.say(text, **{"seed": 1, "max_len": 3, "steps": 2, **options}).audio


def test_the_second_request_reads_only_its_text(voice: Voice, backend: WatchedBackend) -> None:
    first = say(voice, reference=clip())
    reference, text = backend.watch.rows[:2]
    assert reference == 7 + 2
    encoded = backend.watch.runs["patch_encoder"]
    backend.watch.rows.clear()
    backend.watch.runs.clear()
    second = say(voice, reference=clip())
    assert backend.watch.rows == [text, 1, 1]
    assert backend.watch.runs["vae_encoder"] == 0
    # The patch encoder runs for the two steps, no longer for the reference.
    assert backend.watch.runs["patch_encoder"] == 2 == encoded - 1
    assert np.array_equal(first, second)


@pytest.mark.parametrize("dtype", KV_TYPES)
def test_another_text_with_a_kept_voice_is_what_it_is_without(dtype: str, make_bundle) -> None:
    bundle = make_bundle("tiny", "f32", kv=dtype)
    voice = Voice.load(bundle, backend=WatchedBackend(never), profile=kv_profile(dtype))
    say(voice, "something else entirely", reference=clip())
    fresh = Voice.load(
        bundle, backend=WatchedBackend(never), profile=kv_profile(dtype, kept_voices_mib=0)
    )
    expected = say(fresh, "hello world", reference=clip())
    assert model_of(fresh).store.nbytes == 0
    assert model_of(voice).store.nbytes == (7 + 2) * voice.kv_row_bytes()
    assert np.array_equal(say(voice, "hello world", reference=clip()), expected)


@pytest.mark.parametrize("dtype", KV_TYPES)
@pytest.mark.parametrize("bucket", [16, 256])
def test_a_kept_voice_copies_its_rows_and_nothing_else(
    make_bundle, bucket: int, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    from edge_runtime.voxcpm2 import model

    def remember(*arguments: object, **options: object) -> model.KVCache:
        made.append(real(*arguments, **options))
        return made[-1]

    real = model.KVCache
    voice = Voice.load(
        make_bundle("tiny", "f32", kv=dtype),
        backend=WatchedBackend(never),
        profile=kv_profile(dtype, bucket_rows=bucket),
    )
    monkeypatch.setattr(model, "KVCache", remember)
    say(voice, reference=clip())
    say(voice, reference=clip())
    assert [cache.copied_bytes // voice.kv_row_bytes() for cache in made] == [0, 7 + 2]
    assert model_of(voice).store.nbytes == 9 * voice.kv_row_bytes()


def test_trimming_and_the_side_of_padding_make_another_voice(
    voice: Voice, backend: WatchedBackend
) -> None:
    audio = np.concatenate([np.zeros(8000, np.float32), clip(0.55)[0]]), 16_000
    say(voice, reference=audio)
    assert backend.watch.runs["vae_encoder"] == 2
    say(voice, reference=audio, trim_silence=True)
    assert backend.watch.runs["vae_encoder"] == 4
    say(voice, prompt_audio=audio, prompt_text="well")
    assert backend.watch.runs["vae_encoder"] == 6


def test_the_first_chunk_is_the_kept_voice_of_the_others(
    voice: Voice, backend: WatchedBackend
) -> None:
    metrics = voice.say("One two. " * 40, seed=1, max_len=2, steps=2, chunk_rows=150).metrics
    assert len(metrics.chunks) >= 3
    # Two patches of it and a token on each side, read once.
    assert backend.watch.rows.count(4) == 1


def test_the_least_recently_used_voice_goes_first() -> None:
    shape = KVShape(1, 1, 16, max_rows=100, bucket_rows=16)

    def snapshot(rows: int) -> KVSnapshot:
        array = np.zeros((1, 1, rows, 16), np.float32)
        return KVSnapshot(rows, (array, array))

    store = PrefixStore(30 * shape.row_bytes)
    store.keep_rows("a", snapshot(10))
    store.keep_rows("b", snapshot(10))
    store.keep_rows("c", snapshot(10))
    assert store.nbytes == store.max_bytes
    assert store.rows("a") is not None
    store.keep_rows("d", snapshot(10))
    assert store.rows("b") is None
    assert all(store.rows(key) is not None for key in "acd")
    store.keep_rows("e", snapshot(25))
    assert [key for key in "acde" if store.rows(key) is not None] == ["e"]
    assert not store.has_room(31 * shape.row_bytes)
    assert store.clear_rows()
    assert not store.clear_rows()
    assert store.nbytes == 0


def test_clips_are_bounded_by_count_and_the_oldest_unused_goes() -> None:
    store = PrefixStore(1 << 20)
    small = np.zeros((1, 4, 16), np.float32)
    for index in range(40):
        store.keep_clip(str(index), small)
        assert store.clip("0") is small
    assert store.clip_bytes == 32 * small.nbytes
    assert store.clip("1") is None
    assert store.clear_clips()
    assert not store.clear_clips()
    assert store.clip_bytes == 0


def test_clips_and_rows_share_one_budget_and_rows_go_first() -> None:
    store = PrefixStore(1000)
    rows = KVSnapshot(1, (np.zeros((1, 1, 1, 150), np.float32),))
    store.keep_clip("a", np.zeros(100, np.uint8))
    assert store.has_room(900)
    assert not store.has_room(901)
    store.keep_rows("a", rows)
    assert (store.nbytes, store.clip_bytes) == (600, 100)
    store.keep_clip("b", np.zeros(500, np.uint8))
    assert (store.nbytes, store.clip_bytes) == (0, 600)
    store.keep_clip("c", np.zeros(800, np.uint8))
    assert [store.clip(key) is not None for key in "abc"] == [False, False, True]
    # What is too large for all of it throws nothing out.
    store.keep_clip("d", np.zeros(1001, np.uint8))
    assert [store.clip(key) is not None for key in "cd"] == [True, False]


def test_a_fingerprint_is_of_the_values_and_the_shape() -> None:
    values = np.arange(12, dtype=np.float32)
    # The same values with others in between.
    same = {fingerprint(values), fingerprint(np.repeat(values, 2)[::2])}
    assert len(same) == 1
    others = {
        fingerprint(values.reshape(3, 4)), fingerprint(values.reshape(4, 3)),
        fingerprint(values + 1), fingerprint(values, "left"),
    }  # fmt: skip
    assert len(others | same) == 5


def test_many_voices_stay_within_their_limit(f32_bundle: Path) -> None:
    voice = Voice.load(
        f32_bundle, backend=WatchedBackend(never), profile=kv_profile(kept_voices_mib=1, pool_mib=1)
    )
    limit = 1 << 20
    rows = limit // voice.kv_row_bytes()
    for seed in range(2 + 2 * rows // 40):
        say(voice, reference=clip(6.0, seed), max_len=1)
        assert 0 < model_of(voice).store.nbytes <= limit
        assert model_of(voice).pool.nbytes <= limit
    assert model_of(voice).store.nbytes > limit // 2


def test_the_ladder_empties_pool_and_voices_then_drops_the_encoder_then_forgets_clips(
    voice: Voice, backend: WatchedBackend
) -> None:
    before = say(voice, reference=clip())
    model = model_of(voice)
    assert model.pool.nbytes > 0 < model.store.nbytes
    gentle, firm, last = (step.action for step in voice.resources.guard._steps)
    assert gentle()
    assert (model.pool.nbytes, model.store.nbytes, voice.kv_bytes()) == (0, 0, 0)
    assert not gentle()
    assert firm()
    assert model._vae_encoder is None
    assert not firm()
    # The clip's patches are kept: its voice speaks on without the encoder.
    backend.watch.runs.clear()
    assert np.array_equal(say(voice, reference=clip()), before)
    assert model._vae_encoder is None
    assert last()
    assert not last()
    assert model.store.clip_bytes == 0
    assert np.array_equal(say(voice, reference=clip()), before)
    assert model._vae_encoder is not None
    assert firm()
    assert not np.array_equal(say(voice, reference=clip(seed=5)), before)
    assert model._vae_encoder is not None


def test_pools_are_emptied_even_where_the_heap_cannot_be_trimmed(
    voice: Voice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(malloc, "_libc", lambda: None)
    say(voice)
    assert voice.resources.guard._steps[0].action()


def test_the_encoder_is_not_dropped_while_it_encodes(
    voice: Voice, backend: WatchedBackend
) -> None:
    dropped = []

    def squeeze(name: str) -> None:
        if name == "vae_encoder":
            dropped.append(voice.resources.guard._steps[1].action())

    backend.watch.after_run = squeeze
    say(voice, reference=clip(6.0))
    # 6 s are 38 patches, and 4 are encoded at a time.
    assert dropped == [False] * 10


def test_a_voice_is_not_kept_when_that_would_need_the_ladder(
    f32_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    voice = Voice.load(f32_bundle, backend=WatchedBackend(never))
    monkeypatch.setattr(voice.resources.guard, "has_room", lambda needed, *, soft=True: not soft)
    say(voice, reference=clip())
    assert model_of(voice).store.nbytes == 0
    assert not voice.resources.guard.events


def test_above_the_soft_limit_speech_goes_on_with_less_kept(
    f32_bundle: Path, backend: WatchedBackend
) -> None:
    expected = say(Voice.load(f32_bundle, backend=WatchedBackend(never)), reference=clip())
    voice = Voice.load(f32_bundle, backend=backend, memory_soft=1 << 20)
    assert voice.resources.guard.settings == MemorySettings(soft_bytes=1 << 20)
    for _ in range(2):
        assert np.array_equal(say(voice, reference=clip()), expected)
    assert {event.kind for event in voice.resources.guard.events} == {"pressure"}


def test_a_thread_may_read_the_figures_while_requests_run(voice: Voice) -> None:
    stop, errors = threading.Event(), []

    def read() -> None:
        while not stop.wait(0.0002):
            try:
                voice.kv_bytes()
            except RuntimeError as error:
                errors.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        for seed in range(10):
            say(voice, reference=clip(0.3, seed), max_len=1)
    finally:
        stop.set()
        thread.join(20)
    assert not errors
