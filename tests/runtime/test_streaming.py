"""Streams: the same speech as `say`, patch by patch, and nothing computed that nobody asked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from watched_backend import WatchedBackend, never

from edge_runtime.backends.ort import OrtBackend
from edge_runtime.bundle import Bundle
from edge_runtime.noise import SeededNoise
from edge_runtime.voice import Voice
from edge_runtime.voxcpm2.flow import Schedule
from edge_runtime.voxcpm2.spec import VoxCpm2Spec
from edge_runtime.voxcpm2.vae import VaeDecoder, encode_audio

SAMPLES = 4 * 8 * 6 * 5 * 2 * 2 * 2  # patch size times the decoder's rates


def tone(seconds: float, rate: int = 16_000) -> tuple[np.ndarray, int]:
    time = np.arange(int(seconds * rate)) / rate
    return (0.4 * np.sin(2 * np.pi * 220 * time) * np.hanning(len(time))).astype(np.float32), rate


@pytest.fixture
def backend() -> WatchedBackend:
    return WatchedBackend(never)


@pytest.fixture
def voice(f32_bundle: Path, backend: WatchedBackend) -> Voice:
    return Voice.load(f32_bundle, backend=backend, verify=False)


@pytest.mark.parametrize("weights", ["f32", "int8", "int4", "f16"])
def test_a_stream_is_what_say_returns(weights: str, make_bundle) -> None:
    voice = Voice.load(make_bundle("tiny", weights), threads=1, verify=False)
    said = voice.say("hello world", seed=5, retry_badcase=False)
    stream = voice.stream("hello world", seed=5)
    pieces = list(stream)
    assert {len(piece) for piece in pieces} == {SAMPLES}
    assert np.array_equal(np.concatenate(pieces), said.audio)
    assert stream.metrics.chunks == said.metrics.chunks


def test_a_cloned_stream_is_what_say_returns(f32_voice: Voice) -> None:
    arguments = {
        "reference": tone(0.5), "prompt_audio": tone(0.7), "prompt_text": "well",
        "seed": 5, "max_len": 5,
    }  # fmt: skip
    said = f32_voice.say("hello world", **arguments)
    assert np.array_equal(
        np.concatenate(list(f32_voice.stream("hello world", **arguments))), said.audio
    )


def test_a_stream_with_noise_blocks_is_what_say_returns(make_bundle) -> None:
    voice = Voice.load(make_bundle("noise-block", "f32"), threads=1, verify=False)
    said = voice.say("hello", seed=5, max_len=4)
    pieces = list(voice.stream("hello", seed=5, max_len=4))
    assert np.array_equal(np.concatenate(pieces), said.audio)


def test_another_seed_is_another_speech(f32_voice: Voice) -> None:
    one, two, again = (f32_voice.say("hello", seed=seed, max_len=3).audio for seed in (1, 2, 1))
    assert not np.array_equal(one, two)
    assert np.array_equal(one, again)


def test_a_seed_is_drawn_and_reported(f32_voice: Voice) -> None:
    said = f32_voice.say("hello", max_len=3)
    again = f32_voice.say("hello", max_len=3, seed=said.metrics.seed)
    assert np.array_equal(said.audio, again.audio)


@pytest.mark.parametrize(("steps", "zero"), [(2, 1), (10, 1), (50, 2)])
def test_the_first_chunk_leaves_after_one_patch(
    voice: Voice, backend: WatchedBackend, steps: int, zero: int
) -> None:
    stream = voice.stream("hello world", seed=1, steps=steps)
    assert not backend.watch.runs["lm"], "nothing runs before it is asked for"
    next(stream)
    assert dict(backend.watch.runs) == {
        "flow_time": 1, "lm": 1, "flow_condition": 1, "flow": steps - zero, "vae_decoder": 1,
    }  # fmt: skip
    next(stream)
    assert backend.watch.runs["flow"] == 2 * (steps - zero)
    assert backend.watch.steps == backend.watch.runs["patch_encoder"] == 1
    stream.close()


@pytest.mark.parametrize("stop_after", [3, None])
def test_no_step_follows_the_last_patch(f32_bundle: Path, stop_after: int | None) -> None:
    backend = WatchedBackend(lambda runs: stop_after is not None and runs > stop_after)
    voice = Voice.load(f32_bundle, backend=backend, verify=False)
    metrics = voice.say("hello world", seed=1, max_len=9, retry_badcase=False).metrics
    assert metrics.stop_reason == ("stop" if stop_after else "max_len")
    assert backend.watch.steps == metrics.patches - 1
    assert backend.watch.runs["patch_encoder"] == metrics.patches - 1
    assert backend.watch.runs["flow"] == 9 * metrics.patches
    assert backend.watch.order[-1] == "vae_decoder"


def test_guidance_of_one_computes_no_unguided_half(voice: Voice, backend: WatchedBackend) -> None:
    voice.say("hello", seed=1, cfg=1.0, max_len=2)
    assert set(backend.watch.batches) == {1}
    voice.say("hello", seed=1, cfg=2.0, max_len=2)
    assert set(backend.watch.batches) == {1, 2}


def test_guidance_near_one_is_near_guidance_of_one(f32_voice: Voice) -> None:
    one, near = (f32_voice.say("hello", seed=1, cfg=c, max_len=3).audio for c in (1.0, 1.0001))
    np.testing.assert_allclose(near, one, atol=2e-3)


def test_closing_a_stream_ends_all_computing(voice: Voice, backend: WatchedBackend) -> None:
    stream = voice.stream("hello world", seed=1)
    next(stream)
    before = dict(backend.watch.runs)
    stream.close()
    stream.close()
    assert dict(backend.watch.runs) == before
    assert stream.metrics.stop_reason == "cancelled"
    assert stream.metrics.patches == 1
    assert list(stream) == []


def test_a_stream_that_is_closed_unread_computes_nothing(
    voice: Voice, backend: WatchedBackend
) -> None:
    with voice.stream("hello world", seed=1):
        pass
    assert not backend.watch.runs
    assert voice.say("hello", seed=1, max_len=1).metrics.patches == 1


@settings(max_examples=15, deadline=None)
@given(cuts=st.lists(st.integers(1, 8), min_size=1, max_size=6))
def test_audio_encoded_in_pieces_is_what_it_is_in_one(
    cuts: list[int], f32_bundle: Path
) -> None:
    bundle = Bundle.open(f32_bundle, verify=False)
    spec = VoxCpm2Spec.model_validate(bundle.manifest.model)
    graph = OrtBackend(threads=1, spinning=False).load(bundle.path(spec.graphs["vae_encoder"]))
    patch = spec.patch_size * spec.vae_encoder.hop
    audio = np.random.default_rng(0).uniform(-0.5, 0.5, sum(cuts) * patch).astype(np.float32)
    whole = encode_audio(graph, spec, audio)
    assert whole is not None
    from edge_runtime.voxcpm2.vae import _EncoderStream

    stream, start, pieces = _EncoderStream(graph, spec), 0, []
    for cut in cuts:
        piece = audio[None, None, start : start + cut * patch]
        pieces.append(stream.run(np.ascontiguousarray(piece))[0].T)
        start += cut * patch
    found = np.concatenate(pieces).reshape(whole.shape)
    np.testing.assert_allclose(found, whole, atol=1e-4)


def test_a_long_reference_is_encoded_in_bounded_pieces(f32_bundle: Path) -> None:
    backend = WatchedBackend(never)
    voice = Voice.load(f32_bundle, backend=backend, verify=False)
    voice.say("hi", reference=tone(6.0), seed=1, max_len=1)
    # 6 s are 38 patches, and 4 go in at once.
    assert backend.watch.runs["vae_encoder"] == 10
    assert backend.watch.runs["patch_encoder"] == 1


@settings(max_examples=10, deadline=None)
@given(cuts=st.lists(st.integers(1, 3), min_size=1, max_size=4))
def test_latents_decoded_in_pieces_are_what_they_are_in_one(
    cuts: list[int], f32_bundle: Path
) -> None:
    bundle = Bundle.open(f32_bundle, verify=False)
    spec = VoxCpm2Spec.model_validate(bundle.manifest.model)
    graph = OrtBackend(threads=1, spinning=False).load(bundle.path(spec.graphs["vae_decoder"]))
    frames = np.random.default_rng(1).standard_normal((4 * sum(cuts), 16)).astype(np.float32)
    whole = VaeDecoder(graph, spec, SeededNoise(0)).decode(frames)
    decoder, start, pieces = VaeDecoder(graph, spec, SeededNoise(0)), 0, []
    for cut in cuts:
        pieces.append(decoder.decode(frames[4 * start : 4 * (start + cut)]))
        start += cut
    np.testing.assert_allclose(np.concatenate(pieces), whole, atol=1e-5)


@given(steps=st.integers(2, 100))
def test_the_schedule_goes_from_noise_to_latent(steps: int) -> None:
    schedule = Schedule.of(steps)
    assert len(schedule.t) == len(schedule.dt) == steps
    assert schedule.t[0] == 1
    assert (schedule.dt > 0).all()
    assert (np.diff(schedule.t) < 0).all()
    np.testing.assert_allclose(schedule.dt.sum(dtype=np.float64), 1, atol=1e-5)
    assert 1 <= schedule.zero_steps < steps
