"""What every request passes first: the token, or the host name where there is none."""

from __future__ import annotations

import hmac
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import JSONResponse

from boardvoice.server.refusal import Refusal
from boardvoice.server.settings import ServerSettings, is_loopback

_READS = ("GET", "HEAD")
_OPEN = ("/health", "/health/live", "/health/ready")


class Gate:
    """ASGI middleware.

    Args:
        app: What is behind it.
        settings: The token.
    """

    def __init__(self, app: Any, settings: ServerSettings) -> None:
        self._app = app
        self._token = settings.token

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Let a request in or answer it."""
        if scope["type"] == "http" and scope["path"] not in _OPEN:
            try:
                self._check(Headers(scope=scope), scope["method"])
            except Refusal as refusal:
                response = JSONResponse(
                    refusal.as_dict(),
                    refusal.status,
                    headers={**refusal.headers, "Connection": "close"},
                )
                await response(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check(self, headers: Any, method: str) -> None:
        if self._token is not None:
            scheme, _, shown = headers.get("authorization", "").partition(" ")
            same = hmac.compare_digest(shown.strip().encode(), self._token.encode())
            if scheme.lower() != "bearer" or not same:
                raise Refusal(
                    401, "invalid_api_key", "Send the token: Authorization: Bearer TOKEN.",
                    headers={"WWW-Authenticate": "Bearer"},
                )  # fmt: skip
            return
        # Without it, a page of another site could reach this server by a name that it owns.
        host = headers.get("host", "")
        name = host[: host.rfind("]") + 1] if host.startswith("[") else host.partition(":")[0]
        if not is_loopback(name):
            raise Refusal(403, "wrong_host", "Without a token, ask by 127.0.0.1 or localhost.")
        # And a form of another site's page could be sent here, though its answer not be read.
        origin = headers.get("origin")
        if method not in _READS and origin is not None and origin.partition("://")[2] != host:
            raise Refusal(403, "wrong_origin", "Without a token, no page of another site may ask.")
