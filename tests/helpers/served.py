"""A server in a process of its own, and the plainest of clients."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
JSON = {"Content-Type": "application/json"}
# Thousands of patches: nobody reads it, so it holds its turn until it is cancelled.
LONG = "One two three four five six seven eight nine ten. " * 60


@dataclass
class Served:
    process: subprocess.Popen[str]
    port: int
    log_lines: list[str] = field(default_factory=list)

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: Any = None
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            fields = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, fields, answer.read()
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        return json.loads(self.ask("GET", path)[2])

    def speak(self, headers: Any = None, **fields: Any) -> tuple[int, dict[str, str], bytes]:
        body = {"input": "Hello there.", "response_format": "wav", "seed": 5, **fields}
        return self.ask(
            "POST", "/v1/audio/speech", json.dumps(body).encode(), {**JSON, **(headers or {})}
        )

    @contextlib.contextmanager
    def holding(self, **fields: Any) -> Iterator[http.client.HTTPResponse]:
        """A request whose audio has begun and is not read."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        body = {"input": LONG, "response_format": "wav", "speed": 0.25, **fields}
        connection.request("POST", "/v1/audio/speech", json.dumps(body).encode(), JSON)
        answer = connection.getresponse()
        try:
            yield answer
        finally:
            connection.close()
            answer.close()

    def raw(self, data: bytes) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        sock.sendall(data)
        return sock

    def wait_idle(self) -> None:
        until(lambda: self.get("/health")["running"] == 0)

    def stop(self) -> tuple[int, str]:
        self.process.send_signal(signal.SIGTERM)
        _, log = self.process.communicate(timeout=60)
        return self.process.returncode, log


@contextlib.contextmanager
def served(bundle: Path, *options: str, **environment: str) -> Iterator[Served]:
    process = subprocess.Popen(
        [sys.executable, "-m", "boardvoice", "serve", str(bundle), "--port", "0", "--threads", "1",
         *options],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        lines = []
        while "http://" not in (lines or [""])[-1]:
            lines.append(process.stderr.readline())
            assert lines[-1], "".join(lines)
        server = Served(process, int(lines[-1].rsplit(":", 1)[1]), lines)
        until(lambda: server.ask("GET", "/health/ready")[0] == 200)
        yield server
    finally:
        process.kill()
        process.communicate()


def until(happened: Any) -> None:
    for _ in range(1200):
        if happened():
            return
        time.sleep(0.05)
    raise AssertionError("it never happened")


def reason(answer: tuple[int, dict[str, str], bytes]) -> tuple[int, str]:
    error = json.loads(answer[2])["error"]
    assert error["message"]
    assert set(error) == {"message", "type", "param", "code"}
    return answer[0], error["code"]
