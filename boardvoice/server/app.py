"""The server's routes, put together."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route

from boardvoice.server.figures import Figures
from boardvoice.server.gate import Gate
from boardvoice.server.loaded_voice import LoadedVoice
from boardvoice.server.openapi import openapi_document
from boardvoice.server.refusal import Refusal
from boardvoice.server.settings import ServerSettings
from boardvoice.server.speech_endpoint import SpeechEndpoint
from boardvoice.server.turns import Turns
from boardvoice.server.voices_endpoint import VoicesEndpoint


def make_app(
    loaded: LoadedVoice,
    settings: ServerSettings,
    figures: Figures,
    turns: Turns,
    *,
    failed: Callable[[], None],
    alongside: Callable[[Turns], contextlib.AbstractAsyncContextManager[None]],
) -> Any:
    """The ASGI application.

    Args:
        loaded: The voice; it begins to load when the application starts.
        settings: The limits.
        figures: What ``/metrics`` prints.
        turns: Who speaks next.
        failed: Called when the voice cannot be loaded.
        alongside: Runs as long as the application.
    """
    document = openapi_document()
    voices = VoicesEndpoint(loaded, turns, settings)

    @contextlib.asynccontextmanager
    async def lifespan(_app: Any) -> AsyncIterator[None]:
        loaded.start(failed)
        async with alongside(turns):
            yield
        turns.cancel_all()

    async def models(_request: Any) -> Any:
        manifest = loaded.voice().manifest
        model = {"id": manifest.name, "object": "model", "created": 0, "owned_by": "boardvoice"}
        return JSONResponse({"object": "list", "data": [model]})

    async def live(_request: Any) -> Any:
        hung = turns.hung_s(settings.progress_s) > 0
        return JSONResponse({"live": not hung}, 503 if hung else 200)

    async def ready(_request: Any) -> Any:
        return JSONResponse({"ready": loaded.ready}, 200 if loaded.ready else 503)

    async def health(_request: Any) -> Any:
        return JSONResponse(
            {
                "live": True, "ready": loaded.ready, "running": turns.running,
                "waiting": turns.waiting,
            }
        )  # fmt: skip

    async def metrics(_request: Any) -> Any:
        gauges = {
            "boardvoice_queue_waiting": {"": float(turns.waiting)},
            "boardvoice_running": {"": float(turns.running)},
            **loaded.gauges(),
        }
        return PlainTextResponse(figures.text(gauges), media_type="text/plain; version=0.0.4")

    async def openapi(_request: Any) -> Any:
        return JSONResponse(document)

    gets = {
        "/v1/models": models, "/health": health, "/health/live": live,
        "/health/ready": ready, "/metrics": metrics, "/openapi.json": openapi,
    }  # fmt: skip
    return Starlette(
        routes=[
            Route("/v1/audio/speech", SpeechEndpoint(loaded, turns, settings, figures)),
            *(Route(path, voices) for path in ("/v1/voices", "/v1/voices/{name}")),
            *(Route(path, endpoint, methods=["GET"]) for path, endpoint in gets.items()),
        ],
        middleware=[Middleware(Gate, settings=settings)],
        exception_handlers={Refusal: _refused, HTTPException: _http, Exception: _failed},
        lifespan=lifespan,
    )


async def _refused(_request: Any, refusal: Any) -> Any:
    return JSONResponse(refusal.as_dict(), refusal.status, headers=refusal.headers)


async def _http(request: Any, error: Any) -> Any:
    code = "not_found" if error.status_code == 404 else "method_not_allowed"
    return await _refused(
        request,
        Refusal(error.status_code, code, f"{error.detail}.", headers=dict(error.headers or {})),
    )


async def _failed(request: Any, error: Exception) -> Any:
    return await _refused(request, Refusal.of(error))
