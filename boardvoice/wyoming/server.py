"""Takes connections as long as the HTTP server runs, and ends with it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Callable

from boardvoice.server.refusal import Refusal
from boardvoice.wyoming.announcement import announced
from boardvoice.wyoming.connection import Connection
from boardvoice.wyoming.desk import Desk
from boardvoice.wyoming.farewell import refuse

_LOOK_S = 0.1
# Runs that are cut end within one patch; a slow board may take long for one.
_CUT_S = 10.0


class WyomingServer:
    """Serves `listening` while its context is entered.

    Args:
        desk: What connections share.
        listening: A bound socket.
    """

    def __init__(self, desk: Desk, listening: socket.socket) -> None:
        self._desk = desk
        self._listening = listening
        self._clients: dict[asyncio.Task[None], Connection] = {}
        self._leaving = False

    @contextlib.asynccontextmanager
    async def serving(self, ending: Callable[[], bool]) -> AsyncIterator[None]:
        """Serve until the context is left or ``ending`` says so.

        Args:
            ending: Whether the process is to end; clients then get the grace time.
        """
        limit = self._desk.limits.max_body_bytes
        start = (
            asyncio.start_unix_server
            if self._listening.family == getattr(socket, "AF_UNIX", None)
            else asyncio.start_server
        )
        server = await start(self._accept, sock=self._listening, limit=limit)
        left = asyncio.Event()
        watching = asyncio.ensure_future(self._watch(server, lambda: ending() or left.is_set()))
        try:
            async with announced(self._desk.settings, self._listening):
                yield
        finally:
            left.set()
            await watching

    async def _watch(self, server: asyncio.AbstractServer, ending: Callable[[], bool]) -> None:
        while not ending():
            await asyncio.sleep(_LOOK_S)
        self._leaving = True
        server.close()
        for client in self._clients.values():
            client.leave()
        await self._wait(self._desk.limits.grace_s)
        for client in self._clients.values():
            client.cut()
        await self._wait(_CUT_S)
        for task in self._clients:
            task.cancel()

    async def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while self._clients and time.monotonic() < until:
            await asyncio.sleep(_LOOK_S)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        most = self._desk.limits.connections
        if self._leaving or len(self._clients) >= most:
            refusal = Refusal(503, "too_many_connections", f"{most} clients are connected already.")
            if self._leaving:
                refusal = Refusal(503, "ending", "The server is being stopped.")
            self._desk.figures.count("boardvoice_refusals_total", f'reason="{refusal.code}"')
            await refuse(refusal, reader, writer)
            writer.close()
            return
        client = Connection(reader, writer, self._desk)
        task = asyncio.ensure_future(client.run())
        self._clients[task] = client
        try:
            await asyncio.wait({task})
        finally:
            self._clients.pop(task, None)
