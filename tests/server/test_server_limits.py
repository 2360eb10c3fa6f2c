"""Hostile, broken and impatient clients."""

from __future__ import annotations

import http.client
import json
import socket
import threading

import numpy as np
import pytest
import soundfile
from served import JSON, LONG, reason, served, until

HEAD = b"POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def post(server, body, **headers):
    return server.ask("POST", "/v1/audio/speech", body, {**JSON, **headers})


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"input": ""}, (400, "text")),
        ({"input": "\x00"}, (400, "text")),
        ({"input": "a" * 4097}, (400, "string_above_max_length")),
        ({"instructions": "a" * 4097}, (400, "string_above_max_length")),
        ({"instructions": "a) b (c"}, (400, "text")),
        ({"input": 5}, (400, "invalid_value")),
        ({"speed": 9}, (400, "invalid_value")),
        ({"speed": "NaN"}, (400, "invalid_value")),
        ({"sample_rate": 1}, (400, "invalid_value")),
        ({"response_format": "aac"}, (400, "output")),
        ({"response_format": "exe"}, (400, "invalid_value")),
        ({"response_format": "opus", "sample_rate": 44100}, (400, "output")),
        ({"unknown": 1}, (400, "invalid_value")),
        ({"model": "gpt-9"}, (404, "model_not_found")),
        ({"voice": "../../etc/passwd"}, (400, "voice_not_found")),
        ({"voice": "/etc/passwd"}, (400, "voice_not_found")),
        ({"voice": {"id": "file:///etc/passwd"}}, (400, "voice_not_found")),
        ({"voice": "a" * 300}, (400, "invalid_value")),
    ],
)
def test_a_wrong_field_is_told(server, fields, expected):
    assert reason(server.speak(**fields)) == expected


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"input": "\\ud800"}', b"[" * 50_000,
             b'{"input":' * 5_000, b'{"input": NaN}'],
)  # fmt: skip
def test_a_body_that_is_no_request_is_told(server, body):
    assert reason(post(server, body)) == (400, "invalid_value")


def test_other_types_and_compressed_bodies_are_refused(server):
    assert reason(post(server, b"{}", **{"Content-Type": "text/plain"}))[0] == 415
    assert reason(post(server, b"\x1f\x8b", **{"Content-Encoding": "gzip"}))[0] == 415


def test_a_large_body_is_refused_with_and_without_its_length(server):
    with server.raw(HEAD + b"Content-Length: 999999999\r\n\r\n") as sock:
        assert b" 413 " in sock.recv(4096)
    chunk = b"10000\r\n" + b"a" * 0x10000 + b"\r\n"
    with server.raw(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 3) as sock:
        assert b" 413 " in sock.recv(4096)


def test_what_never_arrives_is_not_waited_for(server):
    with server.raw(HEAD + b"Content-Length: 100\r\n\r\n{") as sock:
        assert b" 408 " in sock.recv(4096)
    with server.raw(HEAD) as sock:
        assert sock.recv(4096) == b""
    assert server.speak()[0] == 200


def test_foreign_names_of_this_host_are_refused(server):
    assert reason(server.ask("GET", "/v1/models", None, {"Host": "evil.example"}))[0] == 403
    assert server.ask("GET", "/v1/models", None, {"Host": "[::1]:80"})[0] == 200


def test_unknown_paths_and_methods(server):
    assert reason(server.ask("GET", "/../../etc/passwd"))[0] == 404
    assert reason(server.ask("GET", "/v1/audio/speech"))[0] == 405
    assert reason(server.ask("POST", "/v1/models"))[0] == 405


def test_a_full_queue_is_told_with_when_to_come_back(server):
    answers = []
    with server.holding():
        waiting = threading.Thread(target=lambda: answers.append(server.speak()))
        waiting.start()
        until(lambda: server.get("/health")["waiting"] == 1)
        refused = server.speak()
        assert reason(refused) == (503, "queue_full")
        assert int(refused[1]["retry-after"]) >= 1
    # The one that held the turn went away: the next is served.
    waiting.join(60)
    assert answers[0][0] == 200


def test_a_client_that_waits_and_goes_away_leaves_the_queue(server):
    with server.holding():
        body = json.dumps({"input": "Hello."}).encode()
        head = HEAD + b"Content-Length: %d\r\n\r\n" % len(body)
        with server.raw(head + body):
            until(lambda: server.get("/health")["waiting"] == 1)
        until(lambda: server.get("/health")["waiting"] == 0)
    server.wait_idle()


def test_a_newer_request_of_a_session_ends_the_older(server):
    with server.holding(user="robot") as older:
        assert server.speak({"X-Session-Id": "robot"})[0] == 200
        # Half an answer does not look like a whole one.
        with pytest.raises(http.client.IncompleteRead):
            older.read()
    with server.holding(user="robot"):
        answers = []
        waiting = threading.Thread(target=lambda: answers.append(server.speak(user="other")))
        waiting.start()
        until(lambda: server.get("/health")["waiting"] == 1)
        newest = threading.Thread(target=lambda: server.speak(user="other"))
        newest.start()
        waiting.join(60)
        assert reason(answers[0]) == (409, "superseded")
    newest.join(60)


def test_many_clients_at_once_all_get_an_answer(server):
    server.wait_idle()
    expected = server.speak()[2]
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(server.speak())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(answers) == 8
    for status, _, body in answers:
        assert status in (200, 503)
        assert body == expected if status == 200 else json.loads(body)["error"]["code"]


def test_clients_that_go_away_at_once_leave_nothing_behind(server):
    body = json.dumps({"input": LONG, "response_format": "wav"}).encode()
    head = HEAD + b"Content-Length: %d\r\n\r\n" % len(body)
    for _ in range(10):
        server.raw(head + body).close()
    server.wait_idle()
    assert server.speak()[0] == 200


def test_a_turn_that_does_not_come_and_a_client_that_takes_nothing(f32_bundle):
    with (
        served(f32_bundle, "--deadline", "0.2", "--stall-timeout", "2") as server,
        server.holding(),
    ):
        refused = server.speak()
        assert reason(refused) == (503, "queue_timeout")
        assert int(refused[1]["retry-after"]) >= 1
        server.wait_idle()
        assert server.speak()[0] == 200


def test_a_token_is_needed_and_never_shown(f32_bundle, tmp_path):
    (tmp_path / "token").write_text("correct-horse\n")
    with served(f32_bundle, "--host", "0.0.0.0", "--token-file", str(tmp_path / "token")) as server:
        assert reason(server.speak()) == (401, "invalid_api_key")
        assert reason(server.speak({"Authorization": "Bearer wrong"}))[0] == 401
        assert reason(server.speak({"Authorization": "Bearer caf\xe9"}))[0] == 401
        assert reason(server.ask("GET", "/metrics"))[0] == 401
        assert server.speak({"Authorization": "Bearer correct-horse"})[0] == 200
        assert server.ask("GET", "/health/live")[0] == 200
        code, log = server.stop()
    assert code == 0
    assert "correct-horse" not in log


def test_an_offered_voice_is_spoken_with(f32_bundle, tmp_path):
    clip = tmp_path / "me.wav"
    soundfile.write(clip, np.sin(np.arange(32000) / 9).astype("f4") / 2, 16000)
    with served(f32_bundle, "--voice", f"me={clip}") as server:
        clip.unlink()
        assert [one["id"] for one in server.get("/v1/voices")["data"]] == ["default", "me"]
        assert server.speak(voice="me")[2] != server.speak()[2]


def test_sigterm_lets_a_short_run_end_and_cuts_a_long_one(f32_bundle):
    with served(f32_bundle, "--grace", "1") as server, server.holding():
        code, log = server.stop()
        assert code == 0
        assert "Traceback" not in log
        with pytest.raises(OSError):  # noqa: PT011
            socket.create_connection(("127.0.0.1", server.port), timeout=5)
