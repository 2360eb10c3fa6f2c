"""The last event on a connection, so that it arrives."""

from __future__ import annotations

import asyncio
import contextlib

from boardvoice.server.refusal import Refusal

_LINGER_S = 2.0
_LINGER_BYTES = 4 << 20
_BLOCK = 1 << 16


async def refuse(
    refusal: Refusal, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Send an ``error`` and no more, and wait a moment for the client to close.

    A socket that is closed with bytes unread resets the connection, and the client may lose what
    was sent before; so those are read and dropped, within limits.

    Args:
        refusal: The reason.
        reader: The connection; nobody else reads it.
        writer: The connection; the caller closes it.
    """
    from wyoming.error import Error
    from wyoming.event import async_write_event

    async def finish() -> None:
        await async_write_event(Error(refusal.message, refusal.code).event(), writer)
        writer.write_eof()
        left = _LINGER_BYTES
        while left > 0 and (block := await reader.read(_BLOCK)):
            left -= len(block)

    with contextlib.suppress(OSError, asyncio.TimeoutError):
        await asyncio.wait_for(finish(), _LINGER_S)
