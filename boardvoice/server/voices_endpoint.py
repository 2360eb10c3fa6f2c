"""`/v1/voices`: which there are; one more, from an upload; one less."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar

from starlette.datastructures import Headers
from starlette.responses import JSONResponse

from boardvoice.server.audio_encoder import audio_formats
from boardvoice.server.body_reader import read_body
from boardvoice.server.client_gone import client_gone
from boardvoice.server.form import Part, bad_field, parse_form
from boardvoice.server.loaded_voice import LoadedVoice
from boardvoice.server.refusal import Refusal
from boardvoice.server.settings import ServerSettings
from boardvoice.server.turns import Ticket, Turns
from boardvoice.server.uploaded_clip import memory_needed, read_upload
from edge_runtime.errors import (
    AudioError,
    BoardvoiceError,
    CancelledError,
    OutputError,
    TextError,
    VoiceError,
)
from edge_runtime.voices.names import NAME_PATTERN, is_name
from edge_runtime.voices.stored_voice import StoredVoice

T = TypeVar("T")

# A disk is not to be filled over the network.
_MOST_VOICES = 256
_MOST_TRANSCRIPT = 1000
_FORM_BYTES = 16 << 10
# Slower uplinks than this are not waited for.
_BYTES_PER_S = 128 << 10


class VoicesEndpoint:
    """ASGI application of ``/v1/voices`` and ``/v1/voices/{name}``.

    Args:
        loaded: The voice, which encodes; and its store.
        turns: Who computes next: a clip is encoded when nobody speaks.
        settings: The limits.
    """

    def __init__(self, loaded: LoadedVoice, turns: Turns, settings: ServerSettings) -> None:
        self._loaded = loaded
        self._turns = turns
        self._settings = settings
        # One at a time: bodies are held in memory.
        self._uploading = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        try:
            response = await self._answer(scope, receive)
        except asyncio.CancelledError:
            # Only the server's end does that, when the grace time is over.
            return
        except (ConnectionError, CancelledError):
            # Nobody is there to be answered.
            return
        except (BoardvoiceError, MemoryError, Refusal) as error:
            refusal = Refusal.of(error)
            response = JSONResponse(refusal.as_dict(), refusal.status, headers=refusal.headers)
        await response(scope, receive, send)

    async def _answer(self, scope: Any, receive: Any) -> Any:
        name, method = scope.get("path_params", {}).get("name"), scope["method"]
        if name is not None:
            if method != "DELETE":
                raise _not_allowed("DELETE")
            return JSONResponse(await self._remove(name))
        if method in ("GET", "HEAD"):
            return JSONResponse(await asyncio.to_thread(self._list))
        if method != "POST":
            raise _not_allowed("GET, POST")
        return JSONResponse(await self._add(Headers(scope=scope), receive), 201)

    def _list(self) -> dict[str, Any]:
        data = [
            described(self._loaded.store.find(name) if not self._loaded.is_fixed(name) else None,
                      name)
            for name in self._loaded.voices()
        ]  # fmt: skip
        return {"object": "list", "data": data, "formats": audio_formats()}

    async def _remove(self, name: str) -> dict[str, Any]:
        if self._loaded.is_fixed(name):
            raise Refusal(409, "voice_fixed", "This voice cannot be removed.", param="name")
        if not is_name(name) or not await asyncio.to_thread(
            _stored, self._loaded.store.remove, name
        ):
            raise Refusal(404, "voice_not_found", "There is no stored voice of that name.")
        return {"id": name, "object": "voice", "deleted": True}

    async def _add(self, headers: Any, receive: Any) -> dict[str, Any]:
        self._loaded.voice()
        if self._uploading:
            raise Refusal(
                503, "upload_running", "Another upload is under way. Try again later.",
                retry_after=5,
            )  # fmt: skip
        self._uploading = True
        try:
            name, transcript, file = await self._form(headers, receive)
            return await self._encode(name, transcript, file, receive)
        finally:
            self._uploading = False

    async def _form(self, headers: Any, receive: Any) -> tuple[str, str, Part]:
        most = self._settings.upload_bytes + _FORM_BYTES
        length = headers.get("content-length", "")
        if not length:
            raise Refusal(
                411, "length_required", "Send the body's length.", headers={"Connection": "close"}
            )
        size = int(length) if length.isascii() and length.isdigit() and len(length) < 18 else most
        if size <= most:
            await self._check_room(size)
        body = await read_body(
            headers, receive, max_bytes=most, kind="multipart/form-data",
            seconds=self._settings.receive_s + min(size, most) / _BYTES_PER_S,
        )  # fmt: skip
        fields = parse_form(headers.get("content-type", ""), body, ("name", "file", "transcript"))
        for name in ("name", "file"):
            if name not in fields:
                raise bad_field(name, "it is missing")
        name = fields["name"].text("name", 64)
        if self._loaded.is_fixed(name):
            raise Refusal(
                409, "voice_fixed", "This voice cannot be replaced. Give another name.",
                param="name",
            )  # fmt: skip
        if not is_name(name):
            raise bad_field("name", f"it must match {NAME_PATTERN}, and be none of OpenAI's")
        transcript = ""
        if "transcript" in fields:
            transcript = fields["transcript"].text("transcript", _MOST_TRANSCRIPT)
        stored = await asyncio.to_thread(self._loaded.store.voices)
        if any(voice.name == name for voice in stored):
            raise _taken(name)
        if len(stored) >= _MOST_VOICES:
            raise Refusal(
                409, "too_many_voices", f"There are {len(stored)} voices. Remove one first."
            )
        return name, transcript, fields["file"]

    async def _check_room(self, size: int) -> None:
        guard, needed = self._loaded.voice().resources.guard, memory_needed(size)
        # Only looked at: making room is for whoever has the turn.
        if not await asyncio.to_thread(guard.has_room, needed, soft=False):
            raise Refusal(507, "memory", "There is no room for an upload now. Send a shorter one.")

    async def _encode(self, name: str, transcript: str, file: Part, receive: Any) -> dict[str, Any]:
        """Keep the voice, in a turn of its own."""
        ticket = Ticket(None)
        gone = asyncio.ensure_future(client_gone(receive))
        gone.add_done_callback(lambda _: ticket.cancel.cancel())
        began = time.monotonic()
        try:
            await self._turns.take(ticket, gone)
            began = time.monotonic()
            voice = self._loaded.voice()

            def keep() -> tuple[StoredVoice, tuple[str, ...]]:
                return self._loaded.store.add(
                    name, read_upload(bytes(file.data)), voice,
                    transcript=transcript, cancel=ticket.cancel,
                )  # fmt: skip

            stored, notes = await asyncio.to_thread(_stored, keep)
        except Refusal:
            if gone.done():
                raise ConnectionError("The client went away.") from None
            raise
        finally:
            self._turns.give(ticket, time.monotonic() - began)
            gone.cancel()
        return {**described(stored, name), "notes": list(notes)}


def described(stored: StoredVoice | None, name: str) -> dict[str, Any]:
    """A voice as the list has it; None for one that is not from the store."""
    entry: dict[str, Any] = {
        "id": name, "object": "voice", "name": name, "stored": stored is not None,
    }  # fmt: skip
    if stored is not None:
        entry |= {
            "seconds": stored.seconds, "added": stored.added, "transcript": stored.transcript,
        }  # fmt: skip
    return entry


def _stored(action: Callable[..., T], *arguments: Any) -> T:
    """Do something with the store; errors name the field at fault."""
    try:
        return action(*arguments)
    except AudioError as error:
        raise Refusal(400, error.code, str(error), param="file") from error
    except TextError as error:
        raise Refusal(400, error.code, str(error), param="transcript") from error
    except VoiceError as error:
        raise Refusal(409, "voice_exists", str(error), param="name") from error
    except OutputError as error:
        raise Refusal(507, error.code, "The voice cannot be kept: see the disk.") from error


def _taken(name: str) -> Refusal:
    return Refusal(
        409, "voice_exists", f"There is a voice {name} already. Remove it first.", param="name"
    )


def _not_allowed(methods: str) -> Refusal:
    return Refusal(405, "method_not_allowed", f"Use {methods}.", headers={"Allow": methods})
