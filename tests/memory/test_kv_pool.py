"""KV buffers: pooled, poisoned, grown, counted, and given back whatever happens."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest
from fake_tree import MIB, FakeTree
from hypothesis import given
from hypothesis import strategies as st
from kv_types import KV_TYPES, kv_profile
from kv_types import poison as poison_array
from watched_backend import WatchedBackend, never

from device_profiles.schema import Profile
from edge_runtime import kv_cache
from edge_runtime.errors import MemoryBudgetError
from edge_runtime.kv_cache import KVCache, KVPool, KVShape
from edge_runtime.memory.guard import MARGIN_BYTES, LadderStep, MemoryGuard
from edge_runtime.memory.limits import MemorySettings
from edge_runtime.voice import Voice
from edge_runtime.voxcpm2.model import VoxCpm2Model

SHAPE = KVShape(layers=3, num_kv_heads=2, head_size=16, max_rows=100, bucket_rows=16)
BIG = KVShape(layers=8, num_kv_heads=2, head_size=64, max_rows=16384, bucket_rows=256)
TEXT = "The quick brown fox jumps over the lazy dog while seven wizards brew strange potions."


def profile(dtype: str = "f32", **section: int) -> Profile:
    return kv_profile(dtype, **section)


def pool_of(voice: Voice) -> KVPool:
    model: VoxCpm2Model = voice._model._model
    return model.pool


def poison(pool: KVPool) -> None:
    for arrays in pool._kept.values():
        for array in arrays:
            poison_array(array)


def test_released_buffers_are_used_again_as_they_were_left() -> None:
    pool = KVPool(MIB)
    first = KVCache(SHAPE, 20, pool=pool)
    buffers = {id(buffer) for buffer in first.buffers}
    assert (pool.live_bytes, pool.nbytes) == (first.nbytes, 0)
    size = first.nbytes
    first.release()
    assert (pool.live_bytes, pool.nbytes) == (0, size)
    second = KVCache(SHAPE, 32, pool=pool)
    assert {id(buffer) for buffer in second.buffers} == buffers
    assert (pool.live_bytes, pool.nbytes) == (size, 0)
    assert KVCache(SHAPE, 48, pool=pool).capacity == 48
    assert pool.live_bytes == size + 48 * SHAPE.row_bytes


@given(
    most=st.integers(0, 40_000),
    sizes=st.lists(st.tuples(st.integers(1, 100), st.integers(1, 100)), max_size=12),
)
def test_the_books_balance_and_the_pool_never_holds_more_than_it_may(
    most: int, sizes: list[tuple[int, int]]
) -> None:
    pool = KVPool(most)
    held: list[KVCache] = []
    for rows, grown in sizes:
        cache = KVCache(SHAPE, rows, pool=pool)
        cache.rows = min(rows, 5)
        cache.reserve(grown)
        held.append(cache)
        if len(held) > 2:
            held.pop(0).release()
        assert pool.live_bytes == sum(one.nbytes for one in held)
        assert pool.live_bytes == sum(b.nbytes for one in held for b in one.buffers)
        size = sum(array.nbytes for arrays in pool._kept.values() for array in arrays)
        assert pool.nbytes == size <= most
    for cache in held:
        cache.release()
    assert pool.live_bytes == 0
    kept = list(pool._kept.values())
    assert pool.clear() is any(map(len, kept))
    assert pool.nbytes == 0


def test_growth_leaves_the_old_buffers_to_the_next_request_only_where_both_fit(
    tight: MemoryGuard, tree: FakeTree
) -> None:
    pool = KVPool(64 * MIB)
    cache = KVCache(BIG, rows_of(16 * MIB), pool=pool, guard=tight)
    cache.reserve(rows_of(32 * MIB))
    assert (pool.nbytes, pool.live_bytes) == (16 * MIB, 32 * MIB)
    pool.clear()
    tree.status(anonymous=32)
    cache.reserve(rows_of(48 * MIB))
    assert (pool.nbytes, pool.live_bytes) == (0, 48 * MIB)


def test_the_pool_keeps_whole_caches_small_ones_before_large_ones() -> None:
    pool = KVPool(50 * MIB)

    def speak(*sizes: int) -> int:
        held = [KVCache(BIG, rows_of(size * MIB), pool=pool) for size in sizes]
        for cache in held:
            cache.release()
        return pool.nbytes // MIB

    assert speak(64) == 0
    assert speak(32) == 32
    assert speak(48) == 32
    # Both do not fit, and the smaller one is asked for more often.
    assert speak(24) == 24
    assert speak(32) == 24
    assert speak(16) == 40
    assert speak(24, 16, 8) == 48
    assert speak(24, 24) == 48
    # What is kept has settled: requests of any of these lengths change nothing any more.
    assert [speak(size) for size in (8, 64, 16, 48, 24, 32)] == [48] * 6


def test_only_valid_rows_are_copied_by_growth_and_from_snapshots() -> None:
    cache = KVCache(SHAPE, 16)
    assert cache.copied_bytes == 0
    for buffer in cache.buffers:
        buffer.fill(7)
    cache.rows = 5
    cache.reserve(30)
    assert cache.copied_bytes == 5 * SHAPE.row_bytes
    cache.rows = 20
    cache.reserve(60)
    assert cache.copied_bytes == 25 * SHAPE.row_bytes
    snapshot = cache.snapshot(5)
    assert snapshot.nbytes == 5 * SHAPE.row_bytes
    other = KVCache(SHAPE, 40)
    for buffer in other.buffers:
        buffer.fill(-1)
    other.restore(snapshot)
    assert (other.rows, other.copied_bytes) == (5, 5 * SHAPE.row_bytes)
    assert all((buffer[:, :, :5] == 7).all() for buffer in other.buffers)
    assert all((buffer[:, :, 5:] == -1).all() for buffer in other.buffers)


def test_a_snapshot_does_not_change_with_the_cache_it_came_from() -> None:
    cache = KVCache(SHAPE, 16)
    for buffer in cache.buffers:
        buffer.fill(7)
    snapshot = cache.snapshot(3)
    for buffer in cache.buffers:
        buffer.fill(np.nan)
    assert all((saved == 7).all() for saved in snapshot.buffers)


@pytest.fixture
def tight(tree: FakeTree) -> MemoryGuard:
    """Room for 40 MiB."""
    tree.status(anonymous=10)
    return MemoryGuard(MemorySettings(hard_bytes=50 * MIB + MARGIN_BYTES), tree.root)


def rows_of(size: int) -> int:
    return size // BIG.row_bytes


def test_a_cache_asks_the_guard_for_all_it_takes(tight: MemoryGuard) -> None:
    pool = KVPool(0)
    with pytest.raises(MemoryBudgetError) as caught:
        KVCache(BIG, rows_of(48 * MIB), pool=pool, guard=tight)
    assert caught.value.needed == 48 * MIB
    assert pool.live_bytes == 0
    cache = KVCache(BIG, rows_of(32 * MIB), pool=pool, guard=tight)
    buffers = list(cache.buffers)
    with pytest.raises(MemoryBudgetError) as caught:
        cache.reserve(rows_of(32 * MIB) + rows_of(44 * MIB))
    assert caught.value.needed == 44 * MIB
    assert all(new is old for new, old in zip(cache.buffers, buffers, strict=True))
    assert pool.live_bytes == cache.nbytes == 32 * MIB


def test_pooled_buffers_of_another_size_do_not_count_as_room(tight: MemoryGuard) -> None:
    pool = KVPool(64 * MIB)
    KVCache(BIG, rows_of(16 * MIB), pool=pool).release()
    assert pool.nbytes == 16 * MIB
    with pytest.raises(MemoryBudgetError) as caught:
        KVCache(BIG, rows_of(48 * MIB), pool=pool, guard=tight)
    assert caught.value.needed == 48 * MIB


def test_pooled_buffers_of_the_right_size_need_no_room(tight: MemoryGuard, tree: FakeTree) -> None:
    pool = KVPool(64 * MIB)
    tight.add_step(LadderStep("emptied the pool", pool.clear))
    KVCache(BIG, rows_of(16 * MIB), pool=pool).release()
    tree.status(anonymous=60)
    cache = KVCache(BIG, rows_of(16 * MIB), pool=pool, guard=tight)
    assert not tight.events
    cache.release()
    assert pool.nbytes == 16 * MIB


def test_a_refused_cache_leaves_the_pool_as_it_was(tight: MemoryGuard, tree: FakeTree) -> None:
    pool = KVPool(64 * MIB)
    cache = KVCache(BIG, rows_of(16 * MIB), pool=pool)
    # One buffer is missing in the pool.
    cache.buffers.pop()
    cache.release()
    tree.status(anonymous=60)
    kept = pool.nbytes
    with pytest.raises(MemoryBudgetError):
        KVCache(BIG, rows_of(16 * MIB), pool=pool, guard=tight)
    assert pool.nbytes == kept == 15 * MIB


def test_an_allocator_that_has_nothing_is_a_memory_error_of_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    pool = KVPool(MIB)
    cache = KVCache(SHAPE, 16, pool=pool)
    monkeypatch.setattr(kv_cache.np, "empty", fail)
    with pytest.raises(MemoryBudgetError, match="48 rows found no memory") as caught:
        cache.reserve(48)
    assert caught.value.limited_by == "the allocator"
    cache.release()
    assert pool.live_bytes == 0


def test_all_that_a_run_will_hold_is_asked_for_at_once_before_anything_is_computed(
    f32_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = WatchedBackend(never)
    voice = Voice.load(f32_bundle, backend=backend, profile=profile(pool_mib=0))
    asked: list[tuple[int, str, int]] = []
    monkeypatch.setattr(
        voice.resources.guard,
        "reserve",
        lambda needed, purpose: asked.append((needed, purpose, sum(backend.watch.runs.values()))),
    )
    kv = voice.say("hello", seed=1, max_len=1, steps=2).metrics.kv_bytes
    first = list(asked)
    assert first[0][:2] == (kv, "A KV cache of 256 rows")
    needed, purpose, ran = first[1]
    assert purpose == "Speaking"
    # The flow's table of times is made with the options, whatever the text.
    assert ran == backend.watch.runs["flow_time"] == 1
    cost = voice._model._model._cost
    held = ("lm", "patch_encoder", "flow", "flow_condition", "vae_decoder")
    brief = cost("lm").workspace_bytes(2)
    assert needed == kv + brief + sum(cost(name).least_bytes for name in held)
    asked.clear()
    voice.say("hello", seed=1, max_len=1, steps=2)
    # What the graphs keep is there now.
    assert [entry[0] for entry in asked[:2]] == [kv, kv + brief]


@pytest.mark.parametrize("dtype", KV_TYPES)
@pytest.mark.parametrize("weights", ["f32", "int8", "int4"])
def test_poisoned_pool_growth_and_any_bucket_give_the_same_samples(
    weights: str, dtype: str, make_bundle
) -> None:
    bundle = make_bundle("tiny", weights, kv=dtype)
    found = []
    for bucket in (16, 48, 256):
        voice = Voice.load(
            bundle, backend=WatchedBackend(never), profile=profile(dtype, bucket_rows=bucket)
        )
        for _ in range(2):
            # 30 patches for a text of two tokens: beyond the reply that was expected.
            found.append(voice.say("hello world", seed=3, max_len=22, retry_ratio=20, steps=2))
            assert pool_of(voice).live_bytes == 0
            assert pool_of(voice).nbytes > 0
            poison(pool_of(voice))
        found.append(voice.say(TEXT, seed=3, max_len=1, steps=2))
        assert np.isfinite(found[-1].audio).all()
    plain = Voice.load(bundle, backend=WatchedBackend(never), profile=profile(dtype, pool_mib=0))
    expected = plain.say("hello world", seed=3, max_len=22, retry_ratio=20, steps=2)
    longer = plain.say(TEXT, seed=3, max_len=1, steps=2)
    for index, said in enumerate(found):
        assert np.array_equal(said.audio, (longer if index % 3 == 2 else expected).audio)
    assert pool_of(plain).nbytes == 0


def test_the_same_buffers_serve_one_request_after_another(
    f32_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    voice = Voice.load(f32_bundle, backend=WatchedBackend(never))
    voice.say("hello", seed=1, max_len=2, steps=2)

    def refuse(*_: object) -> None:
        raise AssertionError("a new buffer")

    monkeypatch.setattr(KVCache, "_buffer", refuse)
    voice.say("hello there", seed=2, max_len=3, steps=2)


def end_by_error(voice: Voice, backend: WatchedBackend) -> None:
    def fail(name: str) -> None:
        if name == "vae_decoder":
            raise RuntimeError("ours")

    backend.watch.after_run = fail
    with pytest.raises(RuntimeError, match="ours"):
        voice.say("hello", seed=1, max_len=3)
    backend.watch.after_run = lambda _: None


def end_by_callback(voice: Voice, backend: WatchedBackend) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("theirs")

    with pytest.raises(RuntimeError, match="theirs") as caught:
        voice.say("hello", seed=1, max_len=3, progress=fail)
    # While the caller looks at the error, its traceback keeps the frames alive, not the buffers.
    assert caught.tb is not None
    assert pool_of(voice).live_bytes == 0


def end_by_closing(voice: Voice, backend: WatchedBackend) -> None:
    with voice.stream("hello", seed=1) as stream:
        next(stream)
        assert pool_of(voice).live_bytes > 0
        assert voice.kv_bytes() > 0


def end_by_leaving(voice: Voice, backend: WatchedBackend) -> None:
    stream = voice.stream("hello", seed=1)
    next(stream)
    del stream
    gc.collect()


def end_unread(voice: Voice, backend: WatchedBackend) -> None:
    voice.stream("hello", seed=1).close()


def end_in_the_solver(voice: Voice, backend: WatchedBackend) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("edge_runtime.voxcpm2.model.VaeDecoder", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            voice.say("hello", seed=1, max_len=3)


@pytest.mark.parametrize(
    "end",
    [end_by_error, end_by_callback, end_by_closing, end_by_leaving, end_unread, end_in_the_solver],
)
def test_every_end_gives_the_buffers_back(f32_bundle: Path, end) -> None:
    backend = WatchedBackend(never)
    voice = Voice.load(f32_bundle, backend=backend)
    end(voice, backend)
    pool = pool_of(voice)
    assert pool.live_bytes == 0
    assert voice.kv_bytes() == pool.nbytes
    assert pool.clear() is (end is not end_unread)
    assert voice.kv_bytes() == 0
