"""One client: what it asks is read while what it asked for is spoken."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from typing import Any

from boardvoice.server.refusal import Refusal
from boardvoice.wyoming.desk import PROGRAM, Desk, text_of
from boardvoice.wyoming.farewell import refuse
from boardvoice.wyoming.framing import Received, bad_event, read_event
from boardvoice.wyoming.sentence_feed import SentenceFeed
from boardvoice.wyoming.utterance import Utterance
from edge_runtime.errors import BoardvoiceError
from edge_runtime.text.normalize import normalize_text

_LOG = logging.getLogger("boardvoice")
_PING_CHARS = 1024


class Connection:
    """Ends after its first ``error``: clients of the protocol wait for the end, not for that event.

    Args:
        reader: What the client sends.
        writer: What it is sent.
        desk: The server.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, desk: Desk
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._desk = desk
        self._gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lock = asyncio.Lock()
        self._asked: deque[Utterance] = deque()
        self._more = asyncio.Event()
        # Text of a stream whose end has not come.
        self._feed: SentenceFeed | None = None
        self._leaving = False

    async def run(self) -> None:
        """Serve the client until it goes away or is refused."""
        receiving = asyncio.ensure_future(self._receive())
        speaking = asyncio.ensure_future(self._speak())
        try:
            await asyncio.wait({receiving, speaking}, return_when=asyncio.FIRST_COMPLETED)
            if receiving.done():
                # A run whose client is gone or wrong ends within a patch.
                self.cut()
                await asyncio.wait({speaking})
                went_away = receiving.exception() is None
            else:
                went_away = False
                receiving.cancel()
                await asyncio.wait({receiving})
            if not went_away:
                await self._explain(receiving, speaking)
        finally:
            self.cut()
            for task in (receiving, speaking):
                task.cancel()
            await asyncio.gather(receiving, speaking, return_exceptions=True)
            self._writer.close()
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()

    def leave(self) -> None:
        """End when what was asked is spoken; at once when that is nothing."""
        self._leaving = True
        self._more.set()
        if not self._asked:
            self.cut()

    def cut(self) -> None:
        """End what runs, within one patch, and what waits."""
        if not self._gone.done():
            self._gone.set_result(None)
        if self._asked and (ticket := self._asked[0].ticket) is not None:
            ticket.cancel.cancel()
        self._more.set()

    async def _explain(self, *ended: asyncio.Future[None]) -> None:
        """Tell the client why, and count it."""
        errors = [one.exception() for one in ended if one.done() and not one.cancelled()]
        error = next((one for one in errors if one is not None), None)
        if error is None or isinstance(error, OSError):
            return
        if not isinstance(error, (BoardvoiceError, MemoryError, Refusal)):
            _LOG.error("A Wyoming request failed.", exc_info=error)
        refusal = Refusal.of(error)
        self._desk.figures.count("boardvoice_refusals_total", f'reason="{refusal.code}"')
        self._desk.figures.count("boardvoice_wyoming_requests_total", 'result="refused"')
        await refuse(refusal, self._reader, self._writer)

    async def _write(self, event: Any) -> None:
        from wyoming.event import async_write_event

        stall_s = self._desk.limits.stall_s
        # Two tasks must not wait for one client at a time (Python 3.10).
        async with self._lock:
            try:
                await asyncio.wait_for(async_write_event(event, self._writer), stall_s)
            except asyncio.TimeoutError as error:  # not the built-in one before Python 3.11
                self._desk.figures.count("boardvoice_refusals_total", 'reason="stalled"')
                # What it does not take would keep the connection.
                self._writer.transport.abort()
                raise ConnectionError("The client takes nothing.") from error

    # What it asks.

    async def _receive(self) -> None:
        limits = self._desk.limits
        while first := await self._first_byte():
            event = await read_event(
                first, self._reader, max_bytes=limits.max_body_bytes, seconds=limits.receive_s
            )
            await self._handle(event)

    async def _first_byte(self) -> bytes:
        while True:
            try:
                return await asyncio.wait_for(self._reader.read(1), self._desk.settings.idle_s)
            except asyncio.TimeoutError:  # not the built-in one before Python 3.11
                if not self._asked or self._asked[0].feed.waits:
                    raise Refusal(408, "idle_timeout", "Nothing was asked for long.") from None

    async def _handle(self, event: Received) -> None:
        from wyoming.ping import Pong

        if event.type == "describe":
            await self._write(self._desk.info())
        elif event.type == "ping":
            text = event.data.get("text")
            if text is not None and not (isinstance(text, str) and len(text) <= _PING_CHARS):
                raise bad_event("The text of a ping must be short.")
            await self._write(Pong(text and text.encode(errors="replace").decode()).event())
        elif event.type == "select-program":
            if event.data.get("name") != PROGRAM:
                raise Refusal(404, "program_not_found", f"There is only the program {PROGRAM}.")
        elif event.type == "synthesize-start":
            if self._feed is not None:
                raise bad_event("A stream has been started already.")
            voice = self._desk.voice_name(event.data)
            self._feed = SentenceFeed(self._desk.limits.max_chars)
            self._ask(voice, self._feed, streamed=True)
        elif event.type in ("synthesize-chunk", "synthesize-stop"):
            if self._feed is None:
                raise bad_event(f"{event.type} came before synthesize-start.")
            if event.type == "synthesize-chunk":
                self._feed.add(text_of(event.data))
            else:
                self._feed.end()
                self._feed = None
        elif event.type == "synthesize" and self._feed is None:
            # Within a stream it is the same text again, for servers that know no streams.
            voice, text = self._desk.voice_name(event.data), text_of(event.data)
            feed = SentenceFeed.of(text, self._desk.limits.max_chars)
            normalize_text(text)
            self._ask(voice, feed, streamed=False)
        # The protocol wants other events passed over.

    def _ask(self, voice: str, feed: SentenceFeed, *, streamed: bool) -> None:
        if self._leaving:
            raise Refusal(503, "ending", "The server is being stopped.")
        if len(self._asked) > self._desk.limits.queue:
            raise Refusal(503, "queue_full", "This connection has asked for too much at once.")
        self._asked.append(
            Utterance(
                self._desk, voice, feed, streamed=streamed, write=self._write, gone=self._gone
            )
        )
        self._more.set()

    # What it is told.

    async def _speak(self) -> None:
        while not self._gone.done():
            if not self._asked:
                if self._leaving:
                    return
                self._more.clear()
                await self._more.wait()
                continue
            utterance = self._asked[0]
            speaking = asyncio.ensure_future(utterance.speak())
            try:
                await asyncio.wait({speaking, self._gone}, return_when=asyncio.FIRST_COMPLETED)
                if utterance.feed.waits:
                    speaking.cancel()
                await speaking
            except asyncio.CancelledError:
                if not self._gone.done():
                    raise
                return
            finally:
                speaking.cancel()
            self._asked.popleft()
            self._desk.figures.count("boardvoice_wyoming_requests_total", 'result="spoken"')
