"""Binds a socket and serves until a signal comes."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from boardvoice.server.figures import Figures
from boardvoice.server.loaded_voice import LoadedVoice
from boardvoice.server.notify import Notifier
from boardvoice.server.self_check import SelfCheck
from boardvoice.server.settings import ServerSettings
from boardvoice.server.turns import Turns
from edge_runtime.audio.load import AudioSource
from edge_runtime.errors import DependencyError, OutputError
from edge_runtime.voice import Voice

_LOOK_S = 1.0


def serve(
    load: Callable[[], Voice],
    settings: ServerSettings,
    *,
    references: Mapping[str, AudioSource] | None = None,
    bound: Callable[[str], None] = lambda _url: None,
    notifier: Notifier | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM; runs under way may end within the grace time.

    Args:
        load: Loads the voice, in a thread; the server answers meanwhile.
        settings: Address and limits.
        references: Audio to speak with, by voice name.
        bound: Told the server's URL when the socket is bound.
        notifier: Tells the service manager; by default the one that the environment names.

    Raises:
        DependencyError: The extra is not installed.
        OutputError: The address cannot be bound.
        BoardvoiceError: Whatever ``load`` raises.
    """
    try:
        uvicorn: Any = importlib.import_module("uvicorn")
        app_module: Any = importlib.import_module("boardvoice.server.app")
    except ImportError as error:
        raise DependencyError(
            f"The server needs a package that cannot be imported: {error}.",
            remedy="pip install 'boardvoice[serve]'",
        ) from error
    listening = _bind(settings)
    figures = Figures()
    loaded = LoadedVoice(load, references or {}, figures)

    server: Any

    def stop() -> None:
        server.should_exit = True

    @contextlib.asynccontextmanager
    async def alongside(turns: Turns) -> AsyncIterator[None]:
        check = SelfCheck(
            notifier or Notifier.here(), loaded, turns, settings.progress_s,
            listening.getsockname()[:2], lambda: bool(server.should_exit),
        )  # fmt: skip
        async with _sweeping(server, settings), check.running():
            yield

    app = app_module.make_app(loaded, settings, figures, failed=stop, alongside=alongside)
    server = uvicorn.Server(
        uvicorn.Config(
            app, http="h11", ws="none", lifespan="on", log_level="warning", access_log=False,
            log_config=None, server_header=False, h11_max_incomplete_event_size=16 << 10,
            limit_concurrency=settings.connections, timeout_keep_alive=5,
            timeout_graceful_shutdown=max(round(settings.grace_s), 1),
        )
    )  # fmt: skip
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    host, port = listening.getsockname()[:2]
    bound(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
    try:
        # uvicorn raises the signal again when it has ended: that is how this server is to end.
        with contextlib.suppress(KeyboardInterrupt, SystemExit):
            server.run(sockets=[listening])
    finally:
        listening.close()
    if loaded.error is not None:
        raise loaded.error


def _bind(settings: ServerSettings) -> socket.socket:
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, proto)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(128)
        except OSError:
            listening.close()
            raise
    except OSError as error:
        raise OutputError(
            f"{settings.host}:{settings.port} cannot be bound: {error.strerror or error}.",
            remedy="Give another --host or --port.",
        ) from error
    return listening


@contextlib.asynccontextmanager
async def _sweeping(server: Any, settings: ServerSettings) -> AsyncIterator[None]:
    task = asyncio.ensure_future(_sweep(server, settings.receive_s))
    try:
        yield
    finally:
        task.cancel()


async def _sweep(server: Any, seconds: float) -> None:
    """Close connections on which no request arrives; uvicorn waits for headers without end."""
    idle_since: dict[Any, float] = {}
    while True:
        await asyncio.sleep(min(_LOOK_S, seconds / 2))
        now = time.monotonic()
        idle = {
            connection
            for connection in list(server.server_state.connections)
            if connection.cycle is None or connection.cycle.response_complete
        }
        idle_since = {one: idle_since.get(one, now) for one in idle}
        for connection, since in idle_since.items():
            if now - since > seconds:
                connection.transport.close()
