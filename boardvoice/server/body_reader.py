"""Reads the body of a request: so many bytes, in so much time, and not compressed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from boardvoice.server.refusal import Refusal

Receive: TypeAlias = Callable[[], Awaitable[Any]]


async def read_body(
    headers: Mapping[str, str], receive: Receive, *, max_bytes: int, seconds: float,
    kind: str = "application/json",
) -> bytes:  # fmt: skip
    """The body of a request, of one media type.

    Raises:
        Refusal: Another type, compressed, too large, or too slow.
        ConnectionError: The client went away.
    """
    if headers.get("content-type", "").partition(";")[0].strip().lower() != kind:
        # A page of another site cannot send JSON without asking first.
        raise _refusal(415, "unsupported_media_type", f"The body must be {kind}.")
    if headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise _refusal(415, "unsupported_encoding", "The body must not be compressed.")
    too_large = _refusal(413, "body_too_large", f"The body is limited to {max_bytes} bytes.")
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit()) or len(length) > 18 or int(length) > max_bytes:
        raise too_large

    async def read() -> bytes:
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ConnectionError("The client went away.")
            body += message.get("body", b"")
            if len(body) > max_bytes:
                raise too_large
            if not message.get("more_body", False):
                return bytes(body)

    try:
        return await asyncio.wait_for(read(), seconds)
    except asyncio.TimeoutError as error:  # not the built-in one before Python 3.11
        raise _refusal(
            408, "request_timeout", f"The body did not arrive within {seconds:g} s."
        ) from error


def _refusal(status: int, code: str, message: str) -> Refusal:
    # What is left of the body is not read.
    return Refusal(status, code, message, headers={"Connection": "close"})
