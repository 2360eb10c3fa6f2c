"""The KV cache: sizes, growth, and what it leaves alone."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kv_types import INT8, KV_TYPES, kv_profile, poison
from watched_backend import WatchedBackend, never

from device_profiles.schema import Profile
from edge_runtime import kv_cache
from edge_runtime.errors import CapacityError
from edge_runtime.kv_cache import KVCache, KVShape
from edge_runtime.voice import Voice

SHAPE = KVShape(layers=3, num_kv_heads=2, head_size=16, max_rows=100, bucket_rows=16)
TEXT = "The quick brown fox jumps over the lazy dog while seven wizards brew strange potions."


def profile(bucket_rows: int, dtype: str = "f32") -> Profile:
    return kv_profile(dtype, bucket_rows=bucket_rows)


@pytest.fixture
def stale_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every new buffer is full of NaN (127 in int8), as memory that was used before might be."""
    real = KVCache._buffer

    def stale(self: KVCache, capacity: int) -> np.ndarray:
        buffer = real(self, capacity)
        poison(buffer)
        return buffer

    monkeypatch.setattr(KVCache, "_buffer", stale)


@given(rows=st.integers(0, 400), bucket=st.integers(1, 300), most=st.integers(1, 400))
def test_capacity_is_the_smallest_bucket_that_holds_the_rows(
    rows: int, bucket: int, most: int
) -> None:
    shape = KVShape(1, 1, 16, max_rows=most, bucket_rows=bucket)
    if rows > most:
        with pytest.raises(CapacityError, match=rf"{rows} KV rows.*{most}"):
            shape.capacity(rows)
        return
    capacity = shape.capacity(rows)
    assert max(rows, 1) <= capacity <= most
    assert capacity == most or (capacity % bucket == 0 and capacity - max(rows, 1) < bucket)


@pytest.mark.parametrize(("dtype", "size"), [("f32", 4), ("f16", 2), ("int8", 1)])
def test_bytes_are_two_buffers_per_layer_of_heads_by_rows_by_size(dtype: str, size: int) -> None:
    cache = KVCache(dataclasses.replace(SHAPE, dtype=dtype), 20)
    assert cache.capacity == 32
    assert cache.nbytes == 2 * 3 * 2 * 32 * 16 * size
    assert cache.nbytes == sum(buffer.nbytes for buffer in cache.buffers)
    assert [buffer.shape for buffer in cache.buffers] == [(1, 2, 32, 16)] * 6


def test_growth_copies_the_valid_rows_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = KVCache(SHAPE, 10)
    random = np.random.default_rng(0)
    for buffer in cache.buffers:
        buffer[...] = random.standard_normal(buffer.shape)
        buffer[:, :, 5:] = np.nan
    before = [buffer.copy() for buffer in cache.buffers]
    cache.rows = 5
    marker = np.float32(12345)
    real = KVCache._buffer
    monkeypatch.setattr(
        KVCache, "_buffer", lambda self, capacity: np.full_like(real(self, capacity), marker)
    )
    assert cache.reserve(17)
    assert (cache.capacity, cache.rows) == (32, 5)
    for new, old in zip(cache.buffers, before, strict=True):
        assert np.array_equal(new[:, :, :5], old[:, :, :5])
        assert (new[:, :, 5:] == marker).all(), "neither the stale tail nor zeros were written"


def test_reserving_what_is_there_keeps_the_buffers() -> None:
    cache = KVCache(SHAPE, 16)
    buffers = cache.buffers
    assert not cache.reserve(16)
    assert cache.buffers is buffers


def test_reserving_too_much_is_refused_and_changes_nothing() -> None:
    cache = KVCache(SHAPE, 16)
    buffers = cache.buffers
    with pytest.raises(CapacityError):
        cache.reserve(101)
    assert cache.buffers is buffers
    assert cache.capacity == 16


def test_buffers_are_never_zero_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_kwargs: object) -> None:
        raise AssertionError("zero-filled")

    monkeypatch.setattr(kv_cache.np, "zeros", refuse)
    monkeypatch.setattr(kv_cache.np, "zeros_like", refuse)
    KVCache(SHAPE, 16).reserve(100)


@pytest.mark.parametrize("most", [4096, 9])
def test_a_requests_cache_is_sized_by_its_prefix_and_expected_reply(
    f32_bundle: Path, most: int
) -> None:
    backend = WatchedBackend(lambda runs: runs > 5)
    voice = Voice.load(f32_bundle, backend=backend, profile=profile(16), verify=False)
    metrics = voice.say("hello world", seed=1, max_len=most, steps=2, retry_badcase=False).metrics
    chunk = metrics.chunks[0]
    assert chunk.patches == 6
    expected = min(2 * chunk.tokens + 16, most)
    # Two patches per token and 16 more, unless fewer are allowed; the last one needs no row.
    rows = -(-(chunk.prefix_rows + expected - 1) // 16) * 16
    assert metrics.kv_bytes == rows * voice.kv_row_bytes()


def test_a_prefix_that_cannot_fit_is_refused_before_anything_is_computed(
    f32_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = WatchedBackend()
    voice = Voice.load(f32_bundle, backend=backend)
    backend.watch.runs.clear()
    monkeypatch.setattr(
        "edge_runtime.voxcpm2.speaker.Speaker.plan", lambda self, text, voice, options: [text]
    )
    with pytest.raises(CapacityError):
        voice.say("word " * 600, seed=0)
    # Time tokens belong to the solver's schedule, not to the text.
    assert set(backend.watch.runs) <= {"flow_time"}


@pytest.mark.usefixtures("stale_buffers")
@pytest.mark.parametrize("dtype", KV_TYPES)
@pytest.mark.parametrize("weights", ["f32", "int8", "int4"])
def test_stale_buffers_and_bucket_sizes_do_not_change_the_speech(
    weights: str, dtype: str, make_bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = make_bundle("tiny", weights, kv=dtype)
    spoken = {
        bucket: Voice.load(bundle, threads=1, profile=profile(bucket, dtype), verify=False)
        .say(TEXT, seed=3, max_len=30, retry_badcase=False)
        for bucket in (512, 256, 16)
    }  # fmt: skip
    monkeypatch.undo()
    clean = Voice.load(bundle, threads=1, profile=profile(512, dtype), verify=False).say(
        TEXT, seed=3, max_len=30, retry_badcase=False
    )
    assert spoken[16].metrics.kv_bytes < spoken[256].metrics.kv_bytes < clean.metrics.kv_bytes
    assert clean.metrics.chunks[0].prefix_rows > 2 * 16
    # Only unused rows and what stands in them differ: what is computed does not.
    for said in spoken.values():
        assert np.array_equal(clean.audio, said.audio)


@pytest.mark.usefixtures("stale_buffers")
@pytest.mark.parametrize("dtype", KV_TYPES)
def test_growing_while_speaking_does_not_change_the_speech(
    dtype: str, make_bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = make_bundle("tiny", "f32", kv=dtype)
    whole = Voice.load(bundle, threads=1, profile=profile(256, dtype)).say(
        TEXT, seed=3, max_len=60, retry_badcase=False
    )
    sizes = []
    real = KVShape.capacity

    def watched(self: KVShape, rows: int) -> int:
        sizes.append(real(self, rows))
        return sizes[-1]

    # Room for one row only at first: every bucket has to be grown into.
    start = KVCache.__init__

    def small(self: KVCache, shape: KVShape, rows: int, **options: object) -> None:
        start(self, shape, 1, **options)

    monkeypatch.setattr(KVCache, "__init__", small)
    monkeypatch.setattr(KVShape, "capacity", watched)
    backend = WatchedBackend(never)
    voice = Voice.load(bundle, backend=backend, profile=profile(32, dtype))
    grown = voice.say(TEXT, seed=3, max_len=60, retry_badcase=False)
    # The prefix of 72 rows at once, then patch by patch.
    assert {32, 96, 128} <= set(sizes)
    assert np.array_equal(grown.audio, whole.audio)


@pytest.mark.parametrize("dtype", ["f32", INT8])
@pytest.mark.parametrize("bucket", [16, 256])
def test_prefill_runs_in_pieces_that_do_not_depend_on_the_bucket(
    make_bundle, bucket: int, dtype: str
) -> None:
    backend = WatchedBackend(never)
    bundle = make_bundle("tiny", "f32", kv=dtype)
    voice = Voice.load(bundle, backend=backend, profile=profile(bucket, dtype))
    metrics = voice.say(TEXT * 4, seed=3, max_len=1, chunk_rows=512).metrics
    (chunk,) = metrics.chunks
    assert 256 < chunk.prefix_rows < 512
    assert backend.watch.rows == [256, chunk.prefix_rows - 256]
