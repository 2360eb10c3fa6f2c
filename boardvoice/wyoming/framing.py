"""Reads Wyoming's events off a connection: so many bytes, in so much time, nothing else.

The package's own reader takes lines and lengths of any size.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from boardvoice.server.refusal import Refusal

_TYPE_CHARS = 64
_BLOCK = 1 << 14


@dataclass(frozen=True)
class Received:
    """One event.

    Attributes:
        type: Its name.
        data: What it says. A payload, which no request for speech has, is read and dropped.
    """

    type: str
    data: dict[str, Any]


async def read_event(
    first: bytes, reader: asyncio.StreamReader, *, max_bytes: int, seconds: float
) -> Received:
    """The rest of an event whose first byte is there.

    Args:
        first: That byte.
        reader: The connection; its own limit is that of the line.
        max_bytes: Most bytes of data, and of payload.
        seconds: Time for it to arrive.

    Raises:
        Refusal: It is no event, too large, or too slow.
        ConnectionError: The client went away.
    """
    try:
        return await asyncio.wait_for(_read(first, reader, max_bytes), seconds)
    except asyncio.TimeoutError as error:  # not the built-in one before Python 3.11
        raise Refusal(
            408, "request_timeout", f"The event did not arrive within {seconds:g} s."
        ) from error
    except asyncio.IncompleteReadError as error:
        raise ConnectionError("The client went away.") from error


async def _read(first: bytes, reader: asyncio.StreamReader, max_bytes: int) -> Received:
    try:
        line = first + (await reader.readline() if first != b"\n" else b"")
    except ValueError as error:
        raise _too_large(max_bytes) from error
    if not line.endswith(b"\n"):
        raise ConnectionError("The client went away.")
    header = _object(line, "The line")
    kind, data = header.get("type"), header.get("data")
    if not isinstance(kind, str) or not 0 < len(kind) <= _TYPE_CHARS:
        raise bad_event("An event needs a type.")
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise bad_event("The event's data must be an object.")
    length = _length(header, "data_length", max_bytes)
    payload = _length(header, "payload_length", max_bytes)
    if length:
        data |= _object(await reader.readexactly(length), "The data")
    while payload:
        payload -= len(await reader.readexactly(min(payload, _BLOCK)))
    return Received(kind, data)


def _object(data: bytes, what: str) -> dict[str, Any]:
    try:
        parsed = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise bad_event(f"{what} is not JSON.") from error
    if not isinstance(parsed, dict):
        raise bad_event(f"{what} must be a JSON object.")
    return parsed


def _length(header: dict[str, Any], name: str, most: int) -> int:
    length = header.get(name)
    if length is None:
        return 0
    if isinstance(length, bool) or not isinstance(length, int) or length < 0:
        raise bad_event(f"{name} must be a number of bytes.")
    if length > most:
        raise _too_large(most)
    return length


def bad_event(message: str) -> Refusal:
    """What a client is told that does not keep to the protocol."""
    return Refusal(400, "bad_event", message)


def _too_large(most: int) -> Refusal:
    return Refusal(413, "event_too_large", f"An event is limited to {most} bytes.")
