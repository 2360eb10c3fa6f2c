"""Voices over HTTP: listed, added from uploads of all kinds, removed."""

from __future__ import annotations

import json
import struct
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recordings import RATE, recorded, recording
from served import Served, reason, served, until

from edge_runtime.audio.compressed import compressed_extensions
from edge_runtime.voice import Voice
from edge_runtime.voices.store import VoiceStore


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("voices-state")


@pytest.fixture(scope="module")
def keeper(f32_bundle: Path, state: Path, tmp_path_factory) -> Iterator[Served]:
    """A server with a state folder of its own, and one voice that came with its start."""
    clip = tmp_path_factory.mktemp("clips") / "fixed.wav"
    clip.write_bytes(recorded(recording(seed=9)))
    with served(
        f32_bundle, "--voice", f"fixed={clip}", "--max-upload", "2M", "--receive-timeout", "1",
        BOARDVOICE_STATE=str(state),
    ) as one:  # fmt: skip
        yield one


def form(fields: dict[str, Any], boundary: str = "") -> tuple[bytes, dict[str, str]]:
    boundary = boundary or uuid.uuid4().hex
    body = b""
    for name, value in fields.items():
        file = '; filename="../../etc/passwd"' if isinstance(value, bytes) else ""
        data = value if isinstance(value, bytes) else value.encode()
        kind = b"Content-Type: audio/wav\r\n" if file else b""
        body += b"--%b\r\nContent-Disposition: form-data; name=\"%b\"%b\r\n%b\r\n%b\r\n" % (
            boundary.encode(), name.encode(), file.encode(), kind, data,
        )  # fmt: skip
    body += f"--{boundary}--\r\n".encode()
    return body, {"Content-Type": f"multipart/form-data; boundary={boundary}"}


def add(server: Served, name: str, file: bytes, headers: Any = None, **fields: str):
    body, kind = form({"name": name, "file": file, **fields})
    return server.ask("POST", "/v1/voices", body, {**kind, **(headers or {})})


def remove(server: Served, name: str):
    return server.ask("DELETE", f"/v1/voices/{name}")


def names(server: Served) -> list[str]:
    return [voice["id"] for voice in server.get("/v1/voices")["data"]]


def test_an_upload_becomes_a_voice_at_once_and_goes_again(
    keeper: Served, state: Path, f32_voice: Voice
) -> None:
    status, _, body = add(keeper, "anna", recorded())
    added = json.loads(body)
    assert (status, added["id"], added["object"], added["stored"]) == (201, "anna", "voice", True)
    listed = keeper.get("/v1/voices")
    assert [voice["id"] for voice in listed["data"]] == ["default", "anna", "fixed"]
    assert [voice["stored"] for voice in listed["data"]] == [False, True, False]
    assert listed["formats"]
    stored = VoiceStore(state).get("anna")
    with f32_voice.stream("Hello there.", reference=stored.audio(), seed=5) as stream:
        said = np.concatenate(list(stream))
    wav = keeper.speak(voice="anna")[2]
    expected = np.clip(np.rint(said * 32768), -32768, 32767).astype("<i2").tobytes()
    assert wav[44:] == expected
    assert json.loads(remove(keeper, "anna")[2])["deleted"] is True
    assert names(keeper) == ["default", "fixed"]
    assert reason(keeper.speak(voice="anna")) == (400, "voice_not_found")
    assert reason(remove(keeper, "anna")) == (404, "voice_not_found")


def test_a_voice_that_another_process_adds_is_seen(
    keeper: Served, state: Path, f32_voice: Voice
) -> None:
    store = VoiceStore(state)
    store.add("other", (recording(), RATE), f32_voice, transcript="well then.")
    assert "other" in names(keeper)
    assert keeper.speak(voice="other")[0] == 200
    store.remove("other")
    assert "other" not in names(keeper)


@pytest.mark.parametrize(
    ("kind", "options"),
    [("WAV", {}), ("WAV", {"subtype": "FLOAT"}), ("WAVEX", {"subtype": "PCM_24"}), ("FLAC", {}),
     ("OGG", {"subtype": "VORBIS"}), ("OGG", {"subtype": "OPUS"}), ("MP3", {})],
)  # fmt: skip
def test_formats_that_are_taken(keeper: Served, kind: str, options: dict[str, str]) -> None:
    extension = ".opus" if options.get("subtype") == "OPUS" else f".{kind.lower()}"
    if kind in ("OGG", "MP3") and extension not in compressed_extensions():
        pytest.skip(f"no encoder for {extension}")
    stereo = np.stack([recording(), recording()], axis=1)
    status, _, body = add(keeper, "kind", recorded(stereo, 48_000, kind, **options))
    # A third of the length, since it is taken to be at 48 kHz.
    assert (status, reason_or_none(body)) == (400, "audio")
    audio = np.tile(stereo, (4, 1))
    assert add(keeper, "kind", recorded(audio, 48_000, kind, **options))[0] == 201
    assert remove(keeper, "kind")[0] == 200


def reason_or_none(body: bytes) -> str | None:
    return json.loads(body).get("error", {}).get("code")


@pytest.mark.parametrize("length", [0, 0xFFFFFFFF, 0x7FFFFFFF])
def test_a_recording_whose_header_leaves_its_length_open_is_taken(
    keeper: Served, length: int
) -> None:
    wav = bytearray(recorded())
    wav[4:8] = struct.pack("<I", length)
    wav[40:44] = struct.pack("<I", length)
    status, _, body = add(keeper, "browser", bytes(wav))
    assert status == 201
    assert json.loads(body)["seconds"] == pytest.approx(1.5, abs=0.05)
    assert remove(keeper, "browser")[0] == 200


def wav_that_claims(samples: int) -> bytes:
    wav = bytearray(recorded())
    wav[4:8] = struct.pack("<I", 36 + 2 * samples)
    wav[40:44] = struct.pack("<I", 2 * samples)
    return bytes(wav)


def with_layout(channels: int, rate: int) -> bytes:
    wav = bytearray(recorded())
    wav[22:24] = struct.pack("<H", channels)
    wav[24:28] = struct.pack("<I", rate)
    wav[32:34] = struct.pack("<H", 2 * channels)
    return bytes(wav)


def flac_that_claims(samples: int) -> bytes:
    flac = bytearray(recorded(kind="FLAC"))
    flac[22:26] = struct.pack(">I", samples)
    return bytes(flac)


@pytest.mark.parametrize(
    "file",
    [
        b"", b"\x00" * 5000, b"RIFF", b"RIFF\xff\xff\xff\x7fWAVE", recorded()[:-100],
        wav_that_claims(10**8), with_layout(64, RATE), with_layout(0, RATE), with_layout(1, 400),
        with_layout(1, 768_000), recorded(kind="FLAC")[:3000], flac_that_claims(10**8),
        flac_that_claims(30_000), recorded(kind="AIFF"), recorded(kind="CAF"),
        b"ID3" + b"\xff" * 99,
        # Two hours of silence in a few kilobytes.
        recorded(np.zeros(120 * 60 * 8000, np.float32), 8000, "FLAC"),
        recorded(np.zeros(2 * RATE, np.float32)), recorded(recording(0.5)), b"OggS" + b"\x00" * 500,
        b"<svg onload=alert(1)>",
    ],
)  # fmt: skip
def test_what_makes_no_voice_is_refused_with_a_reason(keeper: Served, file: bytes) -> None:
    assert reason(add(keeper, "bad", file)) == (400, "audio")
    assert names(keeper) == ["default", "fixed"]


@pytest.mark.parametrize(
    "name", ["", "A", "../x", "a/b", "alloy", "default", "fixed", "a" * 65, "x" * 400, "\x00", "ä"]
)
def test_names_that_cannot_be_had(keeper: Served, name: str) -> None:
    status, code = reason(add(keeper, name, recorded()))
    fixed = name in ("alloy", "default", "fixed")
    assert (status, code) == ((409, "voice_fixed") if fixed else (400, "invalid_value"))


def test_what_came_with_the_start_stays_and_a_taken_name_is_told(keeper: Served) -> None:
    for name in ("fixed", "default", "nova"):
        assert reason(remove(keeper, name)) == (409, "voice_fixed")
    for name in ("..", "%2e%2e%2fx", "No", "x" * 500):
        assert reason(remove(keeper, name))[0] == 404
    assert add(keeper, "twice", recorded())[0] == 201
    assert reason(add(keeper, "twice", recorded(recording(seed=3)))) == (409, "voice_exists")
    assert remove(keeper, "twice")[0] == 200


def test_bodies_that_are_no_form_are_told(keeper: Served) -> None:
    def post(body: bytes, **headers: str):
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        return reason(keeper.ask("POST", "/v1/voices", body, fields))

    kind = "multipart/form-data; boundary=b"
    assert post(b"{}", Content_Type="application/json")[0] == 415
    assert post(b"x", Content_Type="multipart/form-data")[0] == 415
    assert post(b"x", Content_Type=kind, Content_Encoding="gzip")[0] == 415
    good = b'--b\r\nContent-Disposition: form-data; name="name"\r\n\r\nx\r\n'
    for body in (
        b"", b"--b", b"--b--", b"--b\r\n\r\n", good, good * 2 + b"--b--", good * 20 + b"--b--",
        good + b"--b--\r\n", b"--b\r\nContent-Disposition: form-data\r\n\r\nx\r\n--b--",
        good.replace(b"name=\"name\"", b"name=\"path\"") + b"--b--",
        b"--b\r\n" + b"A: b\r\n" * 5000 + b"\r\n\r\n--b--",
        good.replace(b"\r\n\r\n", b"\r\nContent-Transfer-Encoding: base64\r\n\r\n") + b"--b--",
    ):  # fmt: skip
        assert post(body, Content_Type=kind) == (400, "invalid_value")
    assert reason(add(keeper, "long", recorded(), transcript="a" * 1001)) == (400, "invalid_value")
    assert reason(add(keeper, "ctrl", recorded(), transcript="\x01")) == (400, "text")
    assert reason(keeper.ask("PUT", "/v1/voices"))[0] == 405
    assert reason(keeper.ask("GET", "/v1/voices/fixed"))[0] == 405


def test_uploads_are_bounded_in_size_and_time(keeper: Served) -> None:
    head = (
        b"POST /v1/voices HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Type: multipart/form-data; boundary=b\r\n"
    )
    for rest, status in (
        (b"Content-Length: 99999999\r\n\r\n", b" 413 "),
        (b"Transfer-Encoding: chunked\r\n\r\n", b" 411 "),
        (b"Content-Length: 100\r\n\r\n--b", b" 408 "),
    ):
        with keeper.raw(head + rest) as sock:
            assert status in sock.recv(4096)
    with keeper.raw(head + b"Content-Length: 200000\r\n\r\n--b"):
        until(lambda: reason(add(keeper, "late", recorded())) == (503, "upload_running"))
    until(lambda: add(keeper, "late", recorded())[0] == 201)
    assert remove(keeper, "late")[0] == 200


def test_pages_of_other_sites_cannot_add_or_remove(keeper: Served) -> None:
    for origin in ("https://evil.example", "null", "http://localhost:1"):
        assert reason(add(keeper, "evil", recorded(), {"Origin": origin})) == (403, "wrong_origin")
    own = f"http://127.0.0.1:{keeper.port}"
    assert add(keeper, "own", recorded(), {"Origin": own})[0] == 201
    evil = {"Origin": "https://evil.example"}
    assert reason(keeper.ask("DELETE", "/v1/voices/own", None, evil)) == (403, "wrong_origin")
    assert remove(keeper, "own")[0] == 200


def test_a_clip_is_encoded_when_nobody_speaks(keeper: Served) -> None:
    answers = []
    with keeper.holding():
        adding = threading.Thread(target=lambda: answers.append(add(keeper, "next", recorded())))
        adding.start()
        until(lambda: keeper.get("/health")["waiting"] == 1)
        assert "next" not in names(keeper)
    adding.join(60)
    assert answers[0][0] == 201
    assert remove(keeper, "next")[0] == 200


def test_a_client_that_goes_away_while_it_waits_adds_nothing(keeper: Served) -> None:
    body, kind = form({"name": "gone", "file": recorded()})
    head = f"POST /v1/voices HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    with keeper.holding():
        with keeper.raw(f"{head}Content-Type: {kind['Content-Type']}\r\n\r\n".encode() + body):
            until(lambda: keeper.get("/health")["waiting"] == 1)
        until(lambda: keeper.get("/health")["waiting"] == 0)
    keeper.wait_idle()
    assert "gone" not in names(keeper)
    assert add(keeper, "gone", recorded())[0] == 201
    assert remove(keeper, "gone")[0] == 200


def test_the_token_is_needed_for_voices_too(f32_bundle: Path, tmp_path: Path) -> None:
    with served(
        f32_bundle, BOARDVOICE_TOKEN="correct-horse", BOARDVOICE_STATE=str(tmp_path)
    ) as server:
        assert reason(add(server, "anna", recorded())) == (401, "invalid_api_key")
        assert reason(server.ask("GET", "/v1/voices"))[0] == 401
        assert reason(remove(server, "anna"))[0] == 401
        token = {"Authorization": "Bearer correct-horse"}
        assert add(server, "anna", recorded(), token)[0] == 201


def test_a_torn_voice_is_not_offered(keeper: Served, state: Path) -> None:
    file = state / "voices" / "torn.voice"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(b"half")
    assert "torn" not in names(keeper)
    assert reason(keeper.speak(voice="torn")) == (400, "voice_not_found")
    assert remove(keeper, "torn")[0] == 200
    assert not file.exists()
