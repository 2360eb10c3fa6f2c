"""A real server, and the service manager's end of its socket."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from pathlib import Path

import pytest
from served import ROOT, served

from boardvoice.server.notify import Notifier
from boardvoice.server.pulse import Pulse
from boardvoice.server.self_check import SelfCheck
from boardvoice.server.turns import Ticket, Turns

# Makes a run hang for as long as a file exists, as a driver that never answers would.
HANG = """
import os, time
from edge_runtime.voice import SpeechStream
real = SpeechStream.__next__
def hang(self):
    while os.path.exists(os.environ["HANG_FILE"]):
        time.sleep(0.05)
    return real(self)
SpeechStream.__next__ = hang
"""
WATCHDOG_S = 2.0


class Manager:
    """Reads what the server tells."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self.socket.settimeout(60)

    def environment(self) -> dict[str, str]:
        return {"NOTIFY_SOCKET": self.address, "WATCHDOG_USEC": str(round(WATCHDOG_S * 1e6))}

    def next(self) -> list[str]:
        return self.socket.recv(4096).decode().splitlines()

    def until(self, begin: str) -> list[str]:
        """The first datagram with such a line."""
        for _ in range(300):
            lines = self.next()
            if any(line.startswith(begin) for line in lines):
                return lines
        raise AssertionError(f"{begin} never came")

    def drain(self) -> list[str]:
        """What has come already."""
        lines: list[str] = []
        self.socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                lines += self.next()
        self.socket.settimeout(60)
        return lines


@pytest.fixture
def manager(tmp_path):
    one = Manager(str(tmp_path / "notify"))
    yield one
    one.socket.close()


def test_ready_when_the_voice_is_loaded_fed_while_it_speaks_and_told_to_stop(manager, f32_bundle):
    options = ("--progress-timeout", "1", "--grace", "1")
    with served(f32_bundle, *options, **manager.environment()) as server:
        first = manager.next()
        assert not any(line.startswith("READY") for line in first)
        ready = manager.until("READY=1")
        assert any("tiny" in line for line in ready if line.startswith("STATUS="))
        with server.holding():
            # Longer than the limit on progress: waiting for a slow reader is no hanging.
            for _ in range(5):
                manager.until("WATCHDOG=1")
            assert server.ask("GET", "/health/live")[0] == 200
            server.process.send_signal(signal.SIGTERM)
            assert "STOPPING=1" in manager.until("STOPPING=1")
        server.process.wait(60)
        assert server.process.returncode == 0


def test_a_run_that_hangs_is_not_fed(manager, f32_bundle, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(HANG)
    hang = tmp_path / "hang"
    environment = {
        **manager.environment(), "HANG_FILE": str(hang), "PYTHONPATH": f"{tmp_path}:{ROOT}",
    }  # fmt: skip
    with served(f32_bundle, "--progress-timeout", "1", **environment) as server:
        manager.until("WATCHDOG=1")
        hang.touch()
        with server.raw(_speak()) as sock:
            manager.until("STATUS=A run has made no progress")
            assert server.ask("GET", "/health/live")[0] == 503
            manager.drain()
            time.sleep(WATCHDOG_S)
            assert "WATCHDOG=1" not in manager.drain()
            hang.unlink()
            manager.until("WATCHDOG=1")
            assert server.ask("GET", "/health/live")[0] == 200
            assert b" 200 " in sock.recv(4096)


def _speak() -> bytes:
    body = b'{"input": "Hello there.", "response_format": "wav", "seed": 5}'
    return (
        b"POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n" % len(body)
    ) + body


def test_a_stopped_process_is_not_fed(f32_bundle):
    # An abstract name, as containers have.
    manager = Manager(f"@boardvoice-test-{os.getpid()}")
    with served(f32_bundle, **manager.environment()) as server:
        manager.until("WATCHDOG=1")
        server.process.send_signal(signal.SIGSTOP)
        time.sleep(0.2)
        manager.drain()
        time.sleep(WATCHDOG_S)
        assert manager.drain() == []
        server.process.send_signal(signal.SIGCONT)
        manager.until("WATCHDOG=1")
    manager.socket.close()


def test_a_server_that_cannot_be_reached_is_not_well():
    class Loaded:
        ready = True

    with socket.create_server(("127.0.0.1", 0)) as deaf:
        for address in (deaf.getsockname(), ("127.0.0.1", 1)):
            check = SelfCheck(
                Notifier("/nowhere", watchdog_s=0.4), Loaded(), Turns(1, 1.0), 1.0, address,
                lambda: False,
            )  # fmt: skip
            fault = asyncio.run(check.fault())
            assert fault is not None
            assert "does not answer" in fault


def test_only_a_run_without_progress_hangs():
    async def body() -> None:
        turns, ticket = Turns(1, 1.0), Ticket(None)
        await turns.take(ticket, asyncio.get_running_loop().create_future())
        assert turns.hung_s(0.0) == 0.0
        ticket.pulse.beat()
        await asyncio.sleep(0.01)
        assert turns.hung_s(0.001) > 0.0
        assert turns.hung_s(60.0) == 0.0
        ticket.pulse.rest()
        assert turns.hung_s(0.001) == 0.0

    asyncio.run(body())
    assert Pulse().age_s() == 0.0


def test_nobody_to_tell_is_no_fault(tmp_path: Path, caplog):
    assert not Notifier().tell("READY=1")
    assert Notifier.here({"NOTIFY_SOCKET": "vsock:2:1234"}).wanted is False
    gone = Notifier(str(tmp_path / "nothing"))
    assert not gone.tell("READY=1")
    assert not gone.tell("READY=1")
    assert caplog.text.count("cannot be told") == 1


def test_a_watchdog_of_somebody_else_is_not_fed():
    base = {"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": "5000000"}
    assert Notifier.here(base).watchdog_s == 5.0
    assert Notifier.here({**base, "WATCHDOG_PID": str(os.getpid())}).watchdog_s == 5.0
    assert Notifier.here({**base, "WATCHDOG_PID": "1"}).watchdog_s is None
    assert Notifier.here({**base, "WATCHDOG_USEC": "x"}).watchdog_s is None
    assert Notifier.here({"WATCHDOG_USEC": "5000000"}).watchdog_s is None


def test_one_line_is_one_assignment(tmp_path):
    manager = Manager(str(tmp_path / "n"))
    Notifier(manager.address).tell("STATUS=a\nREADY=1")
    assert manager.next() == ["STATUS=a READY=1"]
    manager.socket.close()
