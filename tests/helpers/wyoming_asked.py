"""A server that speaks Wyoming too, asked by the package's own client."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from served import Served, served

T = TypeVar("T")


class Asked:
    def __init__(self, server: Served, uri: str) -> None:
        self.server = server
        self.uri = uri
        self.port = int(uri.rsplit(":", 1)[1]) if uri.startswith("tcp") else 0

    def with_client(self, talk: Callable[[Any], Awaitable[T]]) -> T:
        from wyoming.client import AsyncClient

        async def run() -> T:
            async with AsyncClient.from_uri(self.uri, 10, 60) as client:
                return await talk(client)

        return asyncio.run(run())

    def answers(self, *events: Any, last: str = "audio-stop") -> list[Any]:
        """All that comes back, up to the last event, an error, or the end."""

        async def talk(client: Any) -> list[Any]:
            for event in events:
                await client.write_event(event)
            return await heard(client, last)

        return self.with_client(talk)

    def refused(self, *events: Any) -> str:
        """The code of the error that comes back; the connection is closed after it."""

        async def talk(client: Any) -> str:
            for event in events:
                await client.write_event(event)
            answers = await heard(client, "")
            assert answers[-1].type == "error", answers
            assert answers[-1].data["text"]
            return str(answers[-1].data["code"])

        return self.with_client(talk)

    def raw(self, data: bytes) -> bytes:
        """What comes back for bytes, until the server closes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as sock:
            sock.sendall(data)
            answer = b""
            with contextlib.suppress(ConnectionResetError):
                while block := sock.recv(65536):
                    answer += block
            return answer


async def heard(client: Any, last: str) -> list[Any]:
    answers = []
    while (event := await client.read_event()) is not None:
        answers.append(event)
        if event.type == last:
            break
    return answers


def types(events: list[Any]) -> list[str]:
    """Types, with runs of the same as one."""
    kinds = [event.type for event in events]
    return [kind for at, kind in enumerate(kinds) if at == 0 or kinds[at - 1] != kind]


def audio(events: list[Any]) -> bytes:
    return b"".join(event.payload for event in events if event.type == "audio-chunk")


@contextlib.contextmanager
def asked(bundle: Path, *options: str, address: str = "127.0.0.1:0") -> Iterator[Asked]:
    with served(bundle, "--wyoming", address, *options) as server:
        assert server.log_lines
        line = next(line for line in server.log_lines if "tcp://" in line or "unix://" in line)
        yield Asked(server, line.split("listening on ")[1].strip())
