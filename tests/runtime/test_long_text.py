"""Long texts: chunks that cover the text, in one voice, within the rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from watched_backend import WatchedBackend, never

from device_profiles.catalog import load_profile
from edge_runtime.bundle import Bundle
from edge_runtime.errors import CapacityError
from edge_runtime.noise import SeededNoise
from edge_runtime.resources import Resources
from edge_runtime.speech import SpeechOptions
from edge_runtime.voice import Voice
from edge_runtime.voxcpm2.model import VoxCpm2Model
from edge_runtime.voxcpm2.prompt import VoicePrompt
from edge_runtime.voxcpm2.speaker import Speaker

SENTENCES = " ".join(
    f"This is sentence number {number}, and it says little." for number in range(9)
)
FAST = {"steps": 2, "retry_badcase": False, "retry_ratio": 0.2}
ANCHOR = 48


@pytest.fixture(scope="module")
def speaker(f32_bundle: Path) -> Speaker:
    return Speaker(
        Bundle.open(f32_bundle),
        Resources(WatchedBackend(never), load_profile("generic-x86-64")),
    )


@pytest.fixture
def voice(f32_bundle: Path) -> Voice:
    return Voice.load(f32_bundle, backend=WatchedBackend(never), verify=False)


@pytest.fixture
def spoken(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, VoicePrompt, list[np.ndarray]]]:
    """Text, voice and patches of every chunk that was spoken."""
    calls: list[tuple[str, VoicePrompt, list[np.ndarray]]] = []
    real = VoxCpm2Model.speak

    def speak(self, text, voice, *rest):
        utterance, audio = real(self, text, voice, *rest)
        calls.append((text, voice, utterance.patches))
        return utterance, audio

    monkeypatch.setattr(VoxCpm2Model, "speak", speak)
    return calls


def seconds(count: float) -> tuple[np.ndarray, int]:
    return np.random.default_rng(0).uniform(-0.3, 0.3, int(count * 16_000)), 16_000


def test_the_chunks_cover_the_text(voice: Voice, spoken) -> None:
    said = voice.say(SENTENCES, seed=1, chunk_rows=200, **FAST)
    texts = [text for text, _, _ in spoken]
    assert len(texts) > 2
    assert " ".join(texts) == SENTENCES
    assert [chunk.text for chunk in said.metrics.chunks] == texts


def test_reports_of_the_chunks_add_up(voice: Voice) -> None:
    metrics = voice.say(SENTENCES, seed=1, chunk_rows=200, **FAST).metrics
    assert metrics.patches == sum(chunk.patches for chunk in metrics.chunks)
    assert metrics.samples == metrics.patches * 7680
    assert metrics.as_dict()["attempts"] == len(metrics.chunks)
    assert metrics.as_dict()["prefix_rows"] == max(c.prefix_rows for c in metrics.chunks)
    assert metrics.decoded_patches == metrics.patches


def test_a_long_stream_is_what_say_returns(voice: Voice) -> None:
    said = voice.say(SENTENCES, seed=1, chunk_rows=200, **FAST)
    pieces = list(voice.stream(SENTENCES, seed=1, chunk_rows=200, **FAST))
    assert np.array_equal(np.concatenate(pieces), said.audio)


def test_later_chunks_speak_with_the_first_ones_voice(voice: Voice, spoken) -> None:
    voice.say(SENTENCES, seed=1, chunk_rows=200, **FAST)
    _, first, patches = spoken[0]
    assert first.reference is None
    for _, later, _ in spoken[1:]:
        assert later.reference is not None
        assert np.array_equal(later.reference, np.stack(patches[:ANCHOR]))


def test_the_anchor_is_bounded(voice: Voice, spoken) -> None:
    voice.say(SENTENCES, seed=1, chunk_rows=300, steps=2, retry_badcase=False, retry_ratio=2.0)
    assert len(spoken[0][2]) > ANCHOR
    assert len(spoken[1][1].reference) == ANCHOR


def test_a_given_reference_stays_the_voice_of_every_chunk(voice: Voice, spoken) -> None:
    voice.say(SENTENCES, seed=1, reference=seconds(1), chunk_rows=200, **FAST)
    first = spoken[0][1].reference
    assert len(spoken) > 1
    assert all(voice.reference is first for _, voice, _ in spoken)


def test_the_design_leads_every_chunk(voice: Voice, spoken) -> None:
    design = "(an old woman) "
    voice.say(design + SENTENCES, seed=1, chunk_rows=200, **FAST)
    texts = [text for text, _, _ in spoken]
    assert len(texts) > 2
    assert all(text.startswith(design) for text in texts)
    assert " ".join(text.removeprefix(design) for text in texts) == SENTENCES


def test_chunks_draw_noise_of_their_own(voice: Voice) -> None:
    asked = []

    def noise(seed: int, chunk: int) -> SeededNoise:
        asked.append((seed, chunk))
        return SeededNoise(seed, chunk)

    voice.say(SENTENCES, seed=4, chunk_rows=200, make_noise=noise, **FAST)
    assert asked == [(4, index) for index in range(len(asked))]
    shape = (16, 4)
    assert not np.array_equal(SeededNoise(4, 0).patch(shape), SeededNoise(4, 1).patch(shape))


def test_a_text_that_fits_is_not_cut(voice: Voice, spoken) -> None:
    voice.say("One. Two. Three.", seed=1, **FAST)
    assert len(spoken) == 1


@settings(max_examples=40, deadline=None)
@given(
    sentences=st.lists(
        st.text("abcdefgh ,", min_size=1, max_size=40).map(lambda text: f"x{text}. "),
        min_size=1,
        max_size=25,
    ),
    rows=st.integers(120, 512),
    ratio=st.floats(0.1, 6),
    reference=st.sampled_from([0, 10, 40]),
)
def test_every_chunk_fits_the_row_budget(
    speaker: Speaker, sentences: list[str], rows: int, ratio: float, reference: int
) -> None:
    text = " ".join("".join(sentences).split())
    voice = VoicePrompt(np.zeros((reference, 4, 16), np.float32) if reference else None)
    options = SpeechOptions(chunk_rows=rows, retry_ratio=ratio)
    chunks = speaker.plan(text, voice, options)
    assert "".join(chunks).replace(" ", "") == text.replace(" ", "")
    anchor = VoicePrompt(np.zeros((speaker.anchor_patches(options), 4, 16)))
    later = voice if reference or len(chunks) == 1 else anchor
    for chunk in chunks:
        assert speaker._model.rows_needed(chunk, later, options) <= rows


def test_without_a_row_option_the_profile_decides(f32_bundle: Path) -> None:
    for rows, most in ((200, 512), (512, 512)):
        base = load_profile("generic-x86-64")
        profile = base.model_copy(
            update={"text": base.text.model_copy(update={"chunk_rows": rows})}
        )
        speaker = Speaker(Bundle.open(f32_bundle), Resources(WatchedBackend(never), profile))
        chunks = speaker.plan(SENTENCES, VoicePrompt(), SpeechOptions(retry_ratio=2.0))
        assert len(chunks) > 1
        needed = [
            speaker._model.rows_needed(chunk, VoicePrompt(), SpeechOptions(retry_ratio=2.0))
            for chunk in chunks
        ]
        assert rows / 3 < max(needed) <= min(rows, most)


def test_a_reference_that_leaves_no_room_is_refused_before_anything_is_spoken(
    f32_bundle: Path,
) -> None:
    backend = WatchedBackend(never)
    voice = Voice.load(f32_bundle, backend=backend, verify=False)
    # 512 rows are 82 s of audio; two clips of 45 s do not fit together.
    with pytest.raises(CapacityError, match="512 KV rows"):
        voice.say(
            "hello", reference=seconds(45), prompt_audio=seconds(45), prompt_text="a", seed=1
        )
    assert not backend.watch.runs["lm"]
    assert voice.say("hello", seed=1, max_len=1).metrics.patches == 1


def test_a_row_budget_too_small_for_a_word_is_refused(voice: Voice) -> None:
    with pytest.raises(CapacityError, match="20 KV rows"):
        voice.say("hello there, this is more than that", seed=1, chunk_rows=20)
