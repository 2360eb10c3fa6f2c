"""What Home Assistant asks for over Wyoming, and gets."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
import soundfile
from served import LONG, until
from wyoming.audio import AudioStart
from wyoming.info import Describe, Info
from wyoming.ping import Ping
from wyoming.tts import (
    Synthesize,
    SynthesizeChunk,
    SynthesizeStart,
    SynthesizeStop,
    SynthesizeVoice,
)
from wyoming_asked import asked, audio, heard, types

START, STOP = SynthesizeStart().event(), SynthesizeStop().event()


def chunk(text: str):
    return SynthesizeChunk(text).event()


def say(text: str, **fields):
    return Synthesize(text, **fields).event()


def test_the_server_describes_itself(house):
    (answer,) = house.answers(Describe().event(), last="info")
    info = Info.from_event(answer)
    (program,) = info.tts
    assert program.name == "boardvoice"
    assert program.installed
    assert program.version
    assert program.attribution.name
    assert program.supports_synthesize_streaming
    (voice,) = program.voices
    assert (voice.name, voice.installed) == ("default", True)
    assert {"en", "de", "zh"} <= set(voice.languages)
    assert len(voice.languages) == 30
    assert not any((info.asr, info.wake, info.handle, info.intent))


def test_a_text_is_spoken_between_start_and_stop(house):
    answers = house.answers(say("Hello there."))
    assert types(answers) == ["audio-start", "audio-chunk", "audio-stop"]
    start = AudioStart.from_event(answers[0])
    assert (start.rate, start.width, start.channels) == (48000, 2, 1)
    samples = np.frombuffer(audio(answers), "<i2")
    assert len(samples) % 7680 == 0
    assert np.abs(samples).max() > 0
    assert answers[-1].data["timestamp"] == len(samples) * 1000 // 48000
    assert len(answers) > 3


def test_a_voice_from_a_recording_is_listed_and_spoken_with(f32_bundle, tmp_path):
    clip = tmp_path / "me.wav"
    soundfile.write(clip, np.sin(np.arange(32000) / 9).astype("f4") / 2, 16000)
    with asked(f32_bundle, "--voice", f"me={clip}", "--wyoming-languages", "de") as one:
        (answer,) = one.answers(Describe().event(), last="info")
        voices = Info.from_event(answer).tts[0].voices
        assert [(voice.name, voice.languages) for voice in voices] == [
            ("default", ["de"]), ("me", ["de"]),
        ]  # fmt: skip
        answers = one.answers(say("Hello.", voice=SynthesizeVoice(name="me")))
        assert types(answers) == ["audio-start", "audio-chunk", "audio-stop"]


def test_a_stream_is_spoken_sentence_by_sentence_while_its_text_arrives(house):
    async def talk(client):
        await client.write_event(START)
        for part in ("Hel", "lo there. ", "How a"):
            await client.write_event(chunk(part))
        first = await heard(client, "audio-stop")
        # Nothing more was asked: the rest is asked now.
        await client.write_event(chunk("re you? Fine"))
        second = await heard(client, "audio-stop")
        await client.write_event(say("Hello there. How are you? Fine"))
        await client.write_event(STOP)
        return first, second, await heard(client, "synthesize-stopped")

    first, second, rest = house.with_client(talk)
    spoken = ["audio-start", "audio-chunk", "audio-stop"]
    assert types(first) == spoken
    assert types(second) == spoken
    # The whole text, sent again for servers without streams, is not spoken again.
    assert types(rest) == [*spoken, "synthesize-stopped"]


def test_a_stream_that_comes_at_once_ends_once(house):
    answers = house.answers(
        START, chunk("One. Two. Three."), say("One. Two. Three."), STOP, last="synthesize-stopped"
    )
    kinds = types(answers)
    assert kinds[-1] == "synthesize-stopped"
    assert kinds.count("synthesize-stopped") == 1
    assert 1 <= kinds.count("audio-start") == kinds.count("audio-stop") <= 2


@pytest.mark.parametrize("texts", [[], [""], [" * * *\n", "---"]])
def test_a_stream_without_words_is_only_ended(house, texts):
    answers = house.answers(START, *map(chunk, texts), STOP, last="synthesize-stopped")
    assert types(answers) == ["synthesize-stopped"]


def test_one_connection_asks_again_and_again(house):
    async def talk(client):
        first = []
        for _ in range(2):
            await client.write_event(say("Hello."))
            first += await heard(client, "audio-stop")
        await client.write_event(START)
        await client.write_event(chunk("Hello."))
        await client.write_event(STOP)
        return first + await heard(client, "synthesize-stopped")

    spoken = ["audio-start", "audio-chunk", "audio-stop"]
    assert types(house.with_client(talk)) == [*spoken * 3, "synthesize-stopped"]


def test_pings_and_what_is_not_known(house):
    async def talk(client):
        await client.write_event(Ping("at home").event())
        pong = await client.read_event()
        other = Describe().event()
        other.type, other.payload = "played", b"x" * 100
        await client.write_event(other)
        await client.write_event(Ping().event())
        return pong, await client.read_event()

    first, second = house.with_client(talk)
    assert (first.type, first.data["text"]) == ("pong", "at home")
    assert second.type == "pong"


def test_the_first_audio_leaves_before_the_rest_is_made(house):
    async def talk(client):
        await client.write_event(say(LONG[:400]))
        events = [await client.read_event() for _ in range(3)]
        running = await asyncio.to_thread(house.server.get, "/health")
        return events, running

    events, health = house.with_client(talk)
    assert types(events) == ["audio-start", "audio-chunk"]
    assert health["running"] == 1
    # That client is gone: its turn is free.
    house.server.wait_idle()


def test_http_and_wyoming_wait_for_each_other(house):
    with house.server.holding(input=LONG[:400]):

        async def talk(client):
            await client.write_event(say("Hello."))
            await asyncio.to_thread(until, lambda: house.server.get("/health")["waiting"] == 1)

        house.with_client(talk)
        until(lambda: house.server.get("/health")["waiting"] == 0)
    house.server.wait_idle()


def test_figures_count_what_was_asked(house):
    house.answers(say("Hello."))
    text = house.server.ask("GET", "/metrics")[2].decode()
    assert 'boardvoice_wyoming_requests_total{result="spoken"}' in text
    assert 'boardvoice_runs_total{reason="' in text
