"""Whether the server is well, and who is told: the service manager and the log."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable

from boardvoice.server.loaded_voice import LoadedVoice
from boardvoice.server.notify import Notifier
from boardvoice.server.turns import Turns

_LOG = logging.getLogger("boardvoice")
_LOOK_S = 0.25
# Checks per watchdog interval: one may come late, or one datagram be lost.
_CHECKS = 4
_PLAIN_S = 10.0
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class SelfCheck:
    """Asks the server over its own socket, and looks whether the run under way gets on.

    The watchdog is fed by a check that passed, never by a timer: the event loop must turn, accept
    a connection and answer it, and a run must not have been without progress for too long.

    Args:
        notifier: Who is told.
        loaded: The voice.
        turns: The runs.
        progress_s: A run without progress for so long hangs, in seconds.
        address: Where the server listens, host and port.
        ending: Whether the server was told to end.
    """

    def __init__(
        self,
        notifier: Notifier,
        loaded: LoadedVoice,
        turns: Turns,
        progress_s: float,
        address: tuple[str, int],
        ending: Callable[[], bool],
    ) -> None:
        self._notifier = notifier
        self._loaded = loaded
        self._turns = turns
        self._progress_s = progress_s
        self._address = _ANY.get(address[0], address[0]), address[1]
        self._ending = ending
        self._fault: str | None = None
        self._every_s = (notifier.watchdog_s or _PLAIN_S * _CHECKS) / _CHECKS

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Checks as long as the block runs."""
        task = asyncio.ensure_future(self._run())
        try:
            yield
        finally:
            task.cancel()
            self._notifier.tell("STOPPING=1", "STATUS=Ended.")

    async def fault(self) -> str | None:
        """What is wrong, in a sentence; None when all is well."""
        if hung := self._turns.hung_s(self._progress_s):
            return f"A run has made no progress for {hung:.0f} s."
        if self._notifier.watchdog_s is None:
            return None
        try:
            await asyncio.wait_for(self._ask(), self._every_s)
        except (OSError, EOFError, asyncio.TimeoutError) as error:
            return f"The server does not answer itself: {str(error) or 'no answer in time'}."
        return None

    async def _run(self) -> None:
        self._notifier.tell("STATUS=The voice is loading.")
        while not self._loaded.ready:
            await asyncio.sleep(_LOOK_S)
        while not self._notifier.tell("READY=1", f"STATUS={self._status()}"):
            if not self._notifier.wanted:
                break
            await asyncio.sleep(_LOOK_S)
        stopping = False
        due = 0.0
        while True:
            if self._ending() and not stopping:
                stopping = self._notifier.tell("STOPPING=1", "STATUS=Ends with the run under way.")
            if time.monotonic() >= due:
                due = time.monotonic() + self._every_s
                await self._check(stopping)
            await asyncio.sleep(_LOOK_S)

    async def _check(self, stopping: bool) -> None:
        # Told to end, it takes no connections any more.
        fault = None if stopping else await self.fault()
        if fault is None:
            status = [] if stopping else [f"STATUS={self._status()}"]
            self._notifier.tell("WATCHDOG=1", *status)
            if self._fault is not None:
                _LOG.warning("All is well again.")
        else:
            self._notifier.tell(f"STATUS={fault}")
            if self._fault is None:
                _LOG.warning("%s", fault)
        self._fault = fault

    def _status(self) -> str:
        name = self._loaded.voice().manifest.name
        waiting = f", {self._turns.waiting} wait" if self._turns.waiting else ""
        return f"{name}: {'speaks' if self._turns.running else 'ready'}{waiting}."

    async def _ask(self) -> None:
        reader, writer = await asyncio.open_connection(*self._address)
        try:
            writer.write(
                b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            )
            # Any answer will do: with all connections taken it is a refusal.
            await reader.readuntil(b"\r\n")
        finally:
            writer.close()
