"""Binds a socket and serves until a signal comes."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from boardvoice.server.binding import bind
from boardvoice.server.figures import Figures
from boardvoice.server.loaded_voice import LoadedVoice
from boardvoice.server.notify import Notifier
from boardvoice.server.self_check import SelfCheck
from boardvoice.server.settings import ServerSettings
from boardvoice.server.turns import Turns
from boardvoice.wyoming.desk import Desk
from boardvoice.wyoming.listening import address_of, listening_socket
from boardvoice.wyoming.server import WyomingServer
from boardvoice.wyoming.settings import WyomingSettings
from edge_runtime.audio.load import AudioSource
from edge_runtime.errors import DependencyError
from edge_runtime.voice import Voice

_LOOK_S = 1.0


def serve(
    load: Callable[[], Voice],
    settings: ServerSettings,
    *,
    references: Mapping[str, AudioSource] | None = None,
    wyoming: WyomingSettings | None = None,
    bound: Callable[[str], None] = lambda _url: None,
    notifier: Notifier | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM; runs under way may end within the grace time.

    Args:
        load: Loads the voice, in a thread; the server answers meanwhile.
        settings: Address and limits.
        references: Audio to speak with, by voice name.
        wyoming: Where to serve Wyoming as well, with the same voice and limits.
        bound: Told a URL for each socket that is bound.
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
    figures = Figures()
    loaded = LoadedVoice(load, references or {}, figures)
    turns = Turns(settings.queue, settings.deadline_s)
    desk = Desk(loaded, turns, settings, wyoming or WyomingSettings(), figures)

    server: Any

    def stop() -> None:
        server.should_exit = True

    with contextlib.ExitStack() as sockets:
        listening = sockets.enter_context(bind(settings.host, settings.port, "--host or --port"))
        beside: list[WyomingServer] = []
        if wyoming is not None:
            socket = sockets.enter_context(listening_socket(wyoming))
            beside.append(WyomingServer(desk, socket))
            bound(address_of(wyoming, socket))
        host, port = listening.getsockname()[:2]
        bound(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")

        @contextlib.asynccontextmanager
        async def alongside(turns: Turns) -> AsyncIterator[None]:
            check = SelfCheck(
                notifier or Notifier.here(), loaded, turns, settings.progress_s,
                (host, port), lambda: bool(server.should_exit),
            )  # fmt: skip
            async with _alongside(server, settings, beside), check.running():
                yield

        app = app_module.make_app(
            loaded, settings, figures, turns, failed=stop,
            alongside=alongside,
        )  # fmt: skip
        server = uvicorn.Server(
            uvicorn.Config(
                app, http="h11", ws="none", lifespan="on", log_level="warning", access_log=False,
                log_config=None, server_header=False, h11_max_incomplete_event_size=16 << 10,
                # A connection counts itself.
                limit_concurrency=settings.connections + 1, timeout_keep_alive=5,
                timeout_graceful_shutdown=max(round(settings.grace_s), 1),
            )
        )  # fmt: skip
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
        # uvicorn raises the signal again when it has ended: that is how this server is to end.
        with contextlib.suppress(KeyboardInterrupt, SystemExit):
            server.run(sockets=[listening])
    if loaded.error is not None:
        raise loaded.error


@contextlib.asynccontextmanager
async def _alongside(
    server: Any, settings: ServerSettings, beside: list[WyomingServer]
) -> AsyncIterator[None]:
    task = asyncio.ensure_future(_sweep(server, settings.receive_s))
    try:
        async with contextlib.AsyncExitStack() as stack:
            for one in beside:
                await stack.enter_async_context(one.serving(lambda: bool(server.should_exit)))
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
