"""`POST /v1/audio/speech`: from a body to audio that leaves as it is made."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import JSONResponse

from boardvoice.server.audio_encoder import MEDIA_TYPES, AudioEncoder
from boardvoice.server.body_reader import read_body
from boardvoice.server.client_gone import client_gone
from boardvoice.server.figures import Figures
from boardvoice.server.loaded_voice import LoadedVoice
from boardvoice.server.refusal import Refusal
from boardvoice.server.run_figures import account
from boardvoice.server.settings import ServerSettings
from boardvoice.server.speech_body import SpeechBody
from boardvoice.server.speech_run import SpeechRun
from boardvoice.server.turns import Ticket, Turns, superseded
from edge_runtime.errors import BoardvoiceError

SESSION_HEADER = "x-session-id"


class SpeechEndpoint:
    """An ASGI application, so that it sees a client go away at any moment.

    Args:
        loaded: The voice.
        turns: Who speaks next.
        settings: The limits.
        figures: Takes what happened.
    """

    def __init__(
        self, loaded: LoadedVoice, turns: Turns, settings: ServerSettings, figures: Figures
    ) -> None:
        self._loaded = loaded
        self._turns = turns
        self._settings = settings
        self._figures = figures

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        headers = Headers(scope=scope)
        try:
            if scope["method"] != "POST":
                raise Refusal(405, "method_not_allowed", "Use POST.", headers={"Allow": "POST"})
            data = await read_body(
                headers, receive,
                max_bytes=self._settings.max_body_bytes, seconds=self._settings.receive_s,
            )  # fmt: skip
            body = SpeechBody.parse(data, self._settings.max_chars)
            await self._speak(body, headers, receive, send)
        except asyncio.CancelledError:
            # Only the server's end does that, when the grace time is over.
            return
        except ConnectionError:
            # Nobody is there to be answered.
            return
        except (BoardvoiceError, MemoryError, Refusal) as error:
            refusal = Refusal.of(error)
            self._figures.count("boardvoice_refusals_total", f'reason="{refusal.code}"')
            self._figures.count("boardvoice_requests_total", f'status="{refusal.status}"')
            response = JSONResponse(refusal.as_dict(), refusal.status, headers=refusal.headers)
            await response(scope, receive, send)

    async def _speak(self, body: SpeechBody, headers: Any, receive: Any, send: Any) -> None:
        """Send the audio; whatever is raised was raised before the first byte left."""
        self._loaded.voice()
        self._loaded.check_model(body.model)
        self._loaded.reference(body.voice_name)
        body.text()
        ticket = Ticket(headers.get(SESSION_HEADER) or body.user)
        gone = asyncio.ensure_future(client_gone(receive))
        gone.add_done_callback(lambda _: ticket.cancel.cancel())
        asked = began = time.monotonic()
        try:
            await self._turns.take(ticket, gone)
            began = time.monotonic()
            self._figures.see("boardvoice_queue_seconds", began - asked)
            await self._run(body, ticket, send)
        except Refusal:
            if gone.done():
                return
            raise
        finally:
            self._turns.give(ticket, time.monotonic() - began)
            gone.cancel()

    async def _run(self, body: SpeechBody, ticket: Ticket, send: Any) -> None:
        voice = self._loaded.voice()
        encoder = AudioEncoder(
            body.response_format, voice.sample_rate, body.sample_rate, body.speed
        )
        run = SpeechRun(
            lambda: voice.stream(
                body.text(),
                reference=self._loaded.reference(body.voice_name),
                options=body.options(),
                cancel=ticket.cancel,
            ),
            encoder,
            ticket.cancel,
            ticket.pulse,
        )
        try:
            await self._send(body, run, encoder, send, ticket)
        finally:
            await run.close()
            account(run, self._loaded, self._figures)

    async def _send(
        self, body: SpeechBody, run: SpeechRun, encoder: AudioEncoder, send: Any, ticket: Ticket
    ) -> None:
        sse = body.stream_format == "sse"
        pieces = run.pieces()
        first = await _next(pieces)
        if first is None:
            if ticket.superseded:
                raise superseded()
            return
        seed = run.stream.metrics.seed if run.stream is not None else 0
        media = "text/event-stream" if sse else MEDIA_TYPES[body.response_format]
        fields = {
            "content-type": media, "x-sample-rate": encoder.sample_rate, "x-seed": seed,
            "cache-control": "no-store",
        }  # fmt: skip
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [(name.encode(), str(value).encode()) for name, value in fields.items()],
            }
        )
        self._figures.count("boardvoice_requests_total", 'status="200"')
        last: bytes | None = b""
        try:
            await self._piece(send, _delta(first) if sse else first)
            async for data in pieces:
                await self._piece(send, _delta(data) if sse else data)
            if sse:
                last = _done(run)
        except asyncio.TimeoutError:  # not the built-in one before Python 3.11
            # The client takes nothing.
            self._figures.count("boardvoice_refusals_total", 'reason="stalled"')
            return
        except (BoardvoiceError, MemoryError) as error:
            refusal = Refusal.of(error)
            self._figures.count("boardvoice_refusals_total", f'reason="{refusal.code}"')
            last = _event({"type": "error", **refusal.as_dict()}) if sse else None
        if ticket.cancel.cancelled or last is None:
            # Left without an end: half an answer must not look like a whole one.
            return
        await send({"type": "http.response.body", "body": last, "more_body": False})

    async def _piece(self, send: Any, data: bytes) -> None:
        message = {"type": "http.response.body", "body": data, "more_body": True}
        await asyncio.wait_for(send(message), self._settings.stall_s)


async def _next(pieces: AsyncIterator[bytes]) -> bytes | None:
    """The next piece, or None at the end."""
    async for piece in pieces:
        return piece
    return None


def _event(details: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(details)}\n\n".encode()


def _delta(data: bytes) -> bytes:
    return _event({"type": "speech.audio.delta", "audio": base64.b64encode(data).decode()})


def _done(run: SpeechRun) -> bytes:
    metrics = run.stream.metrics if run.stream is not None else None
    tokens = sum(chunk.tokens for chunk in metrics.chunks) if metrics else 0
    patches = metrics.patches if metrics else 0
    usage = {
        "input_tokens": tokens, "output_tokens": patches, "total_tokens": tokens + patches,
    }  # fmt: skip
    return _event({"type": "speech.audio.done", "usage": usage})
