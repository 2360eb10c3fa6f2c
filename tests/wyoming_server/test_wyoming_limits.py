"""Hostile, broken and impatient clients of the Wyoming server."""

from __future__ import annotations

import asyncio
import json
import socket
import threading

import pytest
from served import LONG, until
from wyoming.event import Event
from wyoming.info import Describe, SelectProgram
from wyoming.tts import Synthesize, SynthesizeChunk, SynthesizeStart, SynthesizeVoice
from wyoming_asked import asked, audio, heard, types

HELLO = Synthesize("Hello.").event()


def line(**fields) -> bytes:
    return json.dumps(fields).encode() + b"\n"


@pytest.mark.parametrize(
    ("event", "code"),
    [
        (Synthesize("").event(), "text"),
        (Synthesize("...").event(), "text"),
        (Synthesize("\x01").event(), "text"),
        (Synthesize("a" * 501).event(), "string_above_max_length"),
        (Event("synthesize"), "bad_event"),
        (Event("synthesize", {"text": 5}), "bad_event"),
        (Event("synthesize", {"text": "Hi.", "voice": 5}), "bad_event"),
        (Event("synthesize", {"text": "Hi.", "voice": {"name": 5}}), "bad_event"),
        (Synthesize("Hi.", SynthesizeVoice("../../etc/passwd")).event(), "voice_not_found"),
        (Synthesize("<b>Hi.</b>", text_format="ssml").event(), "unsupported_text_format"),
        (SynthesizeChunk("Hello.").event(), "bad_event"),
        (Event("synthesize-stop"), "bad_event"),
        (Event("ping", {"text": "a" * 2000}), "bad_event"),
        (SelectProgram("piper").event(), "program_not_found"),
    ],
)
def test_a_wrong_event_is_told(house, event, code):
    assert house.refused(event) == code


def test_a_wrong_stream_is_told(house):
    start = SynthesizeStart().event()
    assert house.refused(start, start) == "bad_event"
    pieces = [SynthesizeChunk("a" * 100).event()] * 6
    assert house.refused(start, *pieces) == "string_above_max_length"
    assert house.refused(start, SynthesizeChunk("Hi \x01. Ho").event()) == "text"


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\n", "bad_event"),
        (b"{\n", "bad_event"),
        (b"[]\n", "bad_event"),
        (b"\xff\xfe\n", "bad_event"),
        (b"[" * 50_000 + b"\n", "event_too_large"),
        (b"[" * 20_000 + b"\n", "bad_event"),
        (b"a" * 200_000, "event_too_large"),
        (line(type=5), "bad_event"),
        (line(type="a" * 65), "bad_event"),
        (line(type="describe", data=[]), "bad_event"),
        (line(type="describe", data_length=-1), "bad_event"),
        (line(type="describe", data_length="1"), "bad_event"),
        (line(type="describe", data_length=10**12), "event_too_large"),
        (line(type="describe", payload_length=10**12), "event_too_large"),
        (line(type="describe", data_length=2) + b"[]", "bad_event"),
        (line(type="describe", data_length=2) + b"{x", "bad_event"),
        (line(type="describe", data_length=100) + b"{", "request_timeout"),
        (b'{"type": ', "request_timeout"),
        (b"", "idle_timeout"),
    ],
)
def test_bytes_that_are_no_event_are_told_and_closed(house, data, code):
    assert json.loads(house.raw(data).splitlines()[-1])
    assert f'"code": "{code}"'.encode() in house.raw(data)


def test_a_page_of_a_browser_cannot_ask(house):
    body = line(type="synthesize", data={"text": "Hello."})
    head = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % len(body)
    answer = house.raw(head + body)
    assert b"bad_event" in answer
    assert b"audio" not in answer


def test_a_full_queue_is_told(house):
    with house.server.holding(input=LONG[:400]):
        answers = []
        waiting = threading.Thread(target=lambda: answers.append(house.answers(HELLO)))
        waiting.start()
        until(lambda: house.server.get("/health")["waiting"] == 1)
        assert house.refused(HELLO) == "queue_full"
    waiting.join(60)
    assert types(answers[0]) == ["audio-start", "audio-chunk", "audio-stop"]


def test_one_connection_does_not_pile_up_requests(house):
    assert house.refused(*[Synthesize(LONG[:400]).event()] * 4) == "queue_full"
    house.server.wait_idle()


def test_a_client_that_goes_away_frees_its_turn(house):
    for talk_on in (False, True):
        sock = socket.create_connection(("127.0.0.1", house.port))
        sock.sendall(line(type="synthesize", data={"text": LONG[:450]}))
        if talk_on:
            assert sock.recv(1000)
        until(lambda: house.server.get("/health")["running"] == 1)
        sock.close()
        house.server.wait_idle()
    assert audio(house.answers(HELLO))


def test_a_stream_that_waits_for_text_holds_no_turn(house):
    async def talk(client):
        await client.write_event(SynthesizeStart().event())
        await client.write_event(SynthesizeChunk("Hello there. A").event())
        await heard(client, "audio-stop")
        return (await asyncio.to_thread(house.server.speak))[0]

    assert house.with_client(talk) == 200


def test_a_client_that_takes_nothing_and_one_too_many(f32_bundle):
    options = ("--connections", "2", "--stall-timeout", "1", "--max-chars", "100000")
    with asked(f32_bundle, *options) as one:
        idle = socket.create_connection(("127.0.0.1", one.port))
        with idle, socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.connect(("127.0.0.1", one.port))
            sock.sendall(line(type="synthesize", data={"text": LONG * 4}))
            until(lambda: one.server.get("/health")["running"] == 1)
            assert one.refused(Describe().event()) == "too_many_connections"
            one.server.wait_idle()
        text = one.server.ask("GET", "/metrics")[2].decode()
        assert 'boardvoice_refusals_total{reason="stalled"} 1' in text


def test_sigterm_lets_a_short_run_end_and_cuts_a_long_one(f32_bundle):
    for grace, text, last in (("20", "Hello there.", "audio-stop"), ("1", LONG, "audio-chunk")):
        with asked(f32_bundle, "--grace", grace, "--max-chars", "100000") as one:

            async def talk(client, one=one, text=text):
                await client.write_event(Synthesize(text).event())
                first = await client.read_event()
                stopped = asyncio.create_task(asyncio.to_thread(one.server.stop))
                return [first, *await heard(client, "")], await stopped

            events, (code, log) = one.with_client(talk)
            assert events[-1].type == last
            assert code == 0
            assert "Traceback" not in log
