"""What comes back for a request that can be spoken."""

from __future__ import annotations

import base64
import io
import json

import numpy as np
import pytest
import soundfile
from served import JSON, reason

from edge_runtime.audio.compressed import compressed_extensions


def samples_of(wav: bytes) -> np.ndarray:
    assert wav[:4] == b"RIFF"
    return np.frombuffer(wav[44:], "<i2")


def test_wav_is_what_the_voice_says_at_its_own_rate(server, f32_voice):
    status, headers, wav = server.speak()
    assert (status, headers["content-type"]) == (200, "audio/wav")
    assert headers["x-sample-rate"] == "48000"
    with f32_voice.stream("Hello there.", seed=5) as stream:
        said = np.concatenate(list(stream))
    expected = np.clip(np.rint(said * 32768), -32768, 32767).astype(np.int16)
    assert np.array_equal(samples_of(wav), expected)


def test_pcm_has_the_rate_that_clients_assume_unless_they_say_another(server):
    whole = len(samples_of(server.speak()[2]))
    _, headers, pcm = server.speak(response_format="pcm")
    assert headers["x-sample-rate"] == "24000"
    assert len(pcm) == whole // 2 * 2
    _, headers, pcm = server.speak(response_format="pcm", sample_rate=48000)
    assert headers["x-sample-rate"] == "48000"
    assert len(pcm) == whole * 2


def test_opus_decodes_to_the_same_length(server):
    if ".opus" not in compressed_extensions():
        pytest.skip("no encoder for opus")
    status, headers, data = server.speak(response_format="opus")
    assert (status, headers["content-type"]) == (200, "audio/ogg")
    audio, rate = soundfile.read(io.BytesIO(data))
    assert (rate, headers["x-sample-rate"]) == (48000, "48000")
    assert abs(len(audio) - len(samples_of(server.speak()[2]))) < 2000


def test_mp3_is_the_default(server):
    if ".mp3" not in compressed_extensions():
        pytest.skip("no encoder for mp3")
    body = json.dumps({"input": "Hello there.", "seed": 5}).encode()
    status, headers, data = server.ask("POST", "/v1/audio/speech", body, JSON)
    assert (status, headers["content-type"]) == (200, "audio/mpeg")
    with soundfile.SoundFile(io.BytesIO(data)) as file:
        assert (file.format, file.samplerate) == ("MP3", 48000)
        assert abs(file.frames - len(samples_of(server.speak()[2]))) < 4000
    assert data == server.speak(response_format="mp3")[2]


def test_flac_is_lossless(server):
    expected = samples_of(server.speak()[2])
    _, _, flac = server.speak(response_format="flac")
    # libsndfile needs the number of samples that a stream's header leaves open: 36 bits of it.
    known = bytearray(flac)
    known[22:26] = len(expected).to_bytes(4, "big")
    audio, _ = soundfile.read(io.BytesIO(bytes(known)), dtype="int16")
    assert np.array_equal(audio, expected)


def test_events_hold_the_bytes_of_the_plain_answer(server):
    _, headers, body = server.speak(stream_format="sse")
    assert headers["content-type"] == "text/event-stream"
    events = [json.loads(line[6:]) for line in body.decode().split("\n\n") if line]
    assert [event["type"] for event in events[:-1]] == ["speech.audio.delta"] * (len(events) - 1)
    assert len(events) > 2
    assert events[-1]["type"] == "speech.audio.done"
    assert events[-1]["usage"]["total_tokens"] > 0
    assert b"".join(base64.b64decode(event["audio"]) for event in events[:-1]) == server.speak()[2]


def test_the_first_bytes_leave_before_the_rest_is_made(server):
    with server.holding() as answer:
        assert answer.status == 200
        assert answer.read(4) == b"RIFF"
        assert server.get("/health")["running"] == 1
    server.wait_idle()


def test_speed_changes_the_length(server):
    whole = len(samples_of(server.speak()[2]))
    assert len(samples_of(server.speak(speed=2)[2])) == round(whole / 2)


def test_instructions_are_a_voice_design(server):
    design = server.speak(instructions="a calm old man")[2]
    assert design == server.speak(input="(a calm old man)Hello there.")[2]
    assert design != server.speak()[2]


def test_names_of_openai_are_understood(server):
    assert server.speak(voice="alloy", model="tts-1")[2] == server.speak()[2]
    assert server.speak(voice={"id": "default"})[0] == 200


def test_lists_and_document(server):
    (model,) = server.get("/v1/models")["data"]
    assert server.speak(model=model["id"])[0] == 200
    assert [voice["id"] for voice in server.get("/v1/voices")["data"]] == ["default"]
    document = server.get("/openapi.json")
    assert "/v1/audio/speech" in document["paths"]


def test_figures_are_prometheus_text(server):
    server.speak()
    assert reason(server.speak(input="...")) == (400, "text")
    status, headers, body = server.ask("GET", "/metrics")
    assert status == 200
    assert headers["content-type"].startswith("text/plain")
    lines = dict(
        line.rsplit(" ", 1) for line in body.decode().splitlines() if not line.startswith("#")
    )
    assert float(lines['boardvoice_requests_total{status="200"}']) >= 1
    assert float(lines['boardvoice_refusals_total{reason="text"}']) >= 1
    assert float(lines['boardvoice_memory_bytes{kind="anonymous"}']) > 1e6
    assert 'boardvoice_memory_bytes{kind="kv"}' in lines
    runs = sum(float(value) for name, value in lines.items() if name.startswith("boardvoice_runs"))
    assert runs >= float(lines["boardvoice_rtf_count"]) >= 1
    assert lines["boardvoice_running"] == "0"
