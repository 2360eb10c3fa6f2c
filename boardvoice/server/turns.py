"""Who speaks next: one at a time, from a bounded queue; a newer request ends an older one."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from boardvoice.server.pulse import Pulse
from boardvoice.server.refusal import Refusal
from edge_runtime.cancel import CancelToken


@dataclass(eq=False)
class Ticket:
    """One request's place.

    Attributes:
        session: Who asks; None for nobody in particular.
        cancel: Ends the run.
        superseded: Whether a newer request of the same session took over.
        pulse: Beats as its run gets on.
    """

    session: str | None
    cancel: CancelToken = field(default_factory=CancelToken)
    superseded: bool = False
    pulse: Pulse = field(default_factory=Pulse)
    called: asyncio.Event = field(default_factory=asyncio.Event)


class Turns:
    """Used from the event loop's thread only.

    Args:
        queue: Most tickets that wait.
        deadline_s: Longest wait, in seconds.
    """

    def __init__(self, queue: int, deadline_s: float) -> None:
        self._queue = queue
        self._deadline_s = deadline_s
        self._waiting: deque[Ticket] = deque()
        self._running: Ticket | None = None
        self._mean_s = 1.0

    @property
    def waiting(self) -> int:
        """Requests that wait."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Requests that run: 0 or 1."""
        return int(self._running is not None)

    def hung_s(self, limit_s: float) -> float:
        """How long the run under way has made no progress; 0 where that is within the limit."""
        age = self._running.pulse.age_s() if self._running is not None else 0.0
        return age if age > limit_s else 0.0

    async def take(self, ticket: Ticket, gone: asyncio.Future[None]) -> None:
        """Wait for a turn; give it back with `give`.

        Args:
            ticket: The request.
            gone: Done when its client has gone away.

        Raises:
            Refusal: The queue is full, the deadline has passed, or a newer request took over.
        """
        self._supersede(ticket.session)
        if self._running is None and not self._waiting:
            self._running = ticket
            return
        if len(self._waiting) >= self._queue:
            raise self._busy("queue_full", f"{len(self._waiting)} requests wait already.")
        self._waiting.append(ticket)
        called = asyncio.ensure_future(ticket.called.wait())
        try:
            either: set[asyncio.Future[Any]] = {called, gone}
            await asyncio.wait(
                either, timeout=self._deadline_s, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            called.cancel()
            if ticket in self._waiting:
                self._waiting.remove(ticket)
        if self._running is ticket:
            return
        if ticket.superseded:
            raise superseded()
        raise self._busy("queue_timeout", f"No turn came within {self._deadline_s:g} s.")

    def give(self, ticket: Ticket, seconds: float) -> None:
        """End a turn that took so long; the next in the queue is called."""
        if self._running is not ticket:
            return
        self._mean_s += 0.2 * (seconds - self._mean_s)
        self._running = self._waiting.popleft() if self._waiting else None
        if self._running is not None:
            self._running.called.set()

    def cancel_all(self) -> None:
        """End whatever runs or waits."""
        for ticket in (*self._waiting, *filter(None, [self._running])):
            ticket.cancel.cancel()

    def _supersede(self, session: str | None) -> None:
        if session is None:
            return
        for ticket in (*self._waiting, *filter(None, [self._running])):
            if ticket.session == session:
                ticket.superseded = True
                ticket.cancel.cancel()
                if ticket in self._waiting:
                    self._waiting.remove(ticket)
                    ticket.called.set()

    def _busy(self, code: str, what: str) -> Refusal:
        wait = min(self._mean_s * (len(self._waiting) + 1), 60.0)
        return Refusal(503, code, f"{what} Try again later.", retry_after=wait)


def superseded() -> Refusal:
    """What the older of two requests of one session is told."""
    return Refusal(409, "superseded", "A newer request of the same session took over.")
