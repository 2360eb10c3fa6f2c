"""Notices that a client has gone away."""

from __future__ import annotations

from typing import Any


async def client_gone(receive: Any) -> None:
    """Ends when the client of a request, whose body was read, has gone away."""
    while (await receive())["type"] != "http.disconnect":
        pass
