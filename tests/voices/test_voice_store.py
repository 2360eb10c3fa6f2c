"""Voices are added once, cost nothing afterwards, and are whole or passed over."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest
from recordings import RATE, recorded, recording
from watched_backend import WatchedBackend, never

from edge_runtime.cancel import CancelToken
from edge_runtime.errors import (
    AudioError,
    CancelledError,
    OutputError,
    TextError,
    VoiceError,
)
from edge_runtime.voice import Voice
from edge_runtime.voices.clip import read_clip
from edge_runtime.voices.store import TornVoice, VoiceStore

BRIEF = {"seed": 1, "max_len": 3, "steps": 2}


def say(voice: Voice, reference: object = None, **options: object) -> np.ndarray:
    return voice.say("hello", reference=reference, **{**BRIEF, **options}).audio


def add(store: VoiceStore, voice: Voice, name: str = "anna", **options: object):
    return store.add(name, (recording(), RATE), voice, **options)[0]


def test_a_stored_voice_sounds_as_its_clip_and_never_runs_the_encoder(
    store: VoiceStore, f32_voice: Voice, f32_bundle: Path
) -> None:
    add(store, f32_voice)
    stored = VoiceStore().get("anna")
    expected = say(f32_voice, stored.audio())
    backend = WatchedBackend(never)
    fresh = Voice.load(f32_bundle, backend=backend, verify=False, threads=1)
    assert np.array_equal(say(fresh, stored), expected)
    assert backend.watch.runs["vae_encoder"] == 0
    assert not np.array_equal(say(fresh), expected)
    # Its rows are kept in memory from its first use on.
    backend.watch.rows.clear()
    say(fresh, stored)
    assert max(backend.watch.rows) < 9


def test_with_a_transcript_it_goes_on_from_its_clip(store: VoiceStore, f32_voice: Voice) -> None:
    stored = add(store, f32_voice, transcript="well  then.")
    assert stored.prompt_text == "well then. "
    expected = say(
        f32_voice, stored.audio(), prompt_audio=stored.audio(), prompt_text=stored.prompt_text
    )
    assert np.array_equal(say(f32_voice, stored), expected)
    design = f32_voice.say("(an old man) hello", reference=stored, **BRIEF).audio
    plain = f32_voice.say("(an old man) hello", reference=stored.audio(), **BRIEF).audio
    assert np.array_equal(design, plain)


def test_another_encoder_makes_its_own_latents_once(
    store: VoiceStore, f32_voice: Voice, make_bundle
) -> None:
    stored = add(store, f32_voice)
    latents = list((store.folder / "latents").iterdir())
    assert len(latents) == 1
    backend = WatchedBackend(never)
    other = Voice.load(make_bundle("small-patch"), backend=backend, verify=False, threads=1)
    assert other.encoder != f32_voice.encoder
    first = say(other, stored)
    assert backend.watch.runs["vae_encoder"] > 0
    assert len(list((store.folder / "latents").iterdir())) == 2
    again = Voice.load(make_bundle("small-patch"), backend=WatchedBackend(never), verify=False,
                       threads=1)  # fmt: skip
    assert np.array_equal(say(again, stored), first)
    assert store.remove("anna")
    assert not list((store.folder / "latents").iterdir())


def test_bundles_with_the_same_encoder_share_latents(f32_voice: Voice, int8_voice: Voice) -> None:
    assert f32_voice.encoder == int8_voice.encoder


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "head", "folder"])
def test_a_torn_voice_is_passed_over_told_once_and_can_be_replaced(
    store: VoiceStore, f32_voice: Voice, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    add(store, f32_voice, "good")
    file = add(store, f32_voice).file
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.unlink()
    if damage == "folder":
        file.mkdir()
    else:
        file.write_bytes(
            {"cut": data[:-40], "flip": data, "empty": b"", "head": b"x" + data}[damage]
        )
    entries = store.entries()
    assert [entry.name for entry in entries] == ["anna", "good"]
    assert isinstance(entries[0], TornVoice)
    store.entries()
    assert [voice.name for voice in store.voices()] == ["good"]
    assert store.find("anna") is None
    told = [record for record in caplog.records if "anna" in record.message]
    assert len(told) == 1
    with pytest.raises(VoiceError, match="cannot be used"):
        store.get("anna")
    if damage != "folder":
        add(store, f32_voice)
        assert store.get("anna").audio()[1] == RATE


def test_torn_latents_are_made_again(store: VoiceStore, f32_voice: Voice) -> None:
    stored = add(store, f32_voice)
    (latents,) = (store.folder / "latents").iterdir()
    expected = say(f32_voice, stored)
    whole = latents.read_bytes()
    latents.write_bytes(whole[:-7])
    assert np.array_equal(say(f32_voice, stored), expected)
    assert latents.read_bytes() == whole


def test_what_killed_processes_left_is_removed(store: VoiceStore, f32_voice: Voice) -> None:
    add(store, f32_voice)
    left = [
        store.folder / ".bert.voice.1-0.part",
        store.folder / f".anna.voice.{os.getpid()}-77.part",
        store.folder / "latents" / ".ab-cd.999999-3.part",
        store.folder / "latents" / ("0" * 32 + "-" + "1" * 32),
    ]
    for file in left:
        file.write_bytes(b"half")
    store.tidy()
    assert not any(file.exists() for file in left)
    assert [voice.name for voice in store.voices()] == ["anna"]


def test_a_taken_name_is_refused_and_the_voice_stays(store: VoiceStore, f32_voice: Voice) -> None:
    first = add(store, f32_voice)
    with pytest.raises(VoiceError, match="already"):
        store.add("anna", (recording(seed=5), RATE), f32_voice)
    assert store.get("anna") == first


@pytest.mark.parametrize(
    "name", ["", "../x", "A", "a b", "-a", "a" * 65, "default", "alloy", "a.voice", "\x00", "ü"]
)
def test_names_are_plain(store: VoiceStore, f32_voice: Voice, name: str) -> None:
    for action in (store.get, store.remove, lambda name: add(store, f32_voice, name)):
        with pytest.raises(VoiceError):
            action(name)
    assert store.find(name) is None
    assert not store.folder.exists()


def test_clips_that_make_no_voice_are_refused(store: VoiceStore, f32_voice: Voice) -> None:
    square = np.sign(np.sin(np.arange(2 * RATE) / 30)).astype(np.float32)
    for audio in (recording(0.9), recording(31), square, np.zeros(2 * RATE, np.float32)):
        with pytest.raises(AudioError):
            store.add("anna", (audio, RATE), f32_voice)
    with pytest.raises(TextError):
        store.add("anna", (recording(), RATE), f32_voice, transcript="\x00")
    assert store.entries() == []


def test_a_clip_is_trimmed_resampled_and_kept() -> None:
    silence = np.zeros(RATE, np.float32)
    clip = read_clip((np.concatenate([silence, recording(), silence]), RATE))
    assert 1.9 <= clip.seconds < 2.1
    samples, rate = clip.audio()
    again = read_clip(recorded(samples, rate))
    # Trimmed already: next to nothing is left to trim.
    assert abs(again.seconds - clip.seconds) < 0.05
    assert read_clip((recording(12), 96_000)).sample_rate == 48_000
    loud = read_clip((recording() * 5, RATE))
    assert "quieter" in loud.notes[0]
    assert np.abs(loud.audio()[0]).max() <= 1


def test_adding_waits_for_its_turn_and_can_be_cancelled(
    store: VoiceStore, f32_voice: Voice
) -> None:
    token = CancelToken()
    with f32_voice.stream("hello", seed=1) as stream:
        next(stream)
        failed: list[BaseException] = []

        def work() -> None:
            try:
                add(store, f32_voice, cancel=token)
            except CancelledError as error:
                failed.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join(0.3)
        assert thread.is_alive()
        token.cancel()
        thread.join(20)
        assert failed
    assert store.entries() == []
    add(store, f32_voice)


def test_a_state_folder_that_cannot_be_made_is_told(tmp_path: Path, f32_voice: Voice) -> None:
    (tmp_path / "file").write_text("")
    store = VoiceStore(tmp_path / "file")
    assert store.entries() == []
    store.tidy()
    with pytest.raises(OutputError, match="BOARDVOICE_STATE"):
        add(store, f32_voice)
