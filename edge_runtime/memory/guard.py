"""The guard: asked before memory grows, it makes room step by step or refuses in time."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edge_runtime.errors import MemoryBudgetError
from edge_runtime.memory.limits import (
    SOFT_LIMIT,
    Limit,
    MemorySettings,
    available_memory,
    current_limits,
)
from edge_runtime.memory.psi import memory_stall_percent

_LOG = logging.getLogger("boardvoice")
_MIB = 1 << 20
# Left untouched below every hard limit: what Python, page tables and sockets may still take
# between two looks.
MARGIN_BYTES = 24 * _MIB

# A device runs for months; only the latest events are of interest.
_EVENTS = 256

# Beyond this share of time lost to waiting for memory, what is not needed is given back.
_STALL_PERCENT = 20.0
# The share is an average over so long: what a step has brought shows no earlier.
_STALL_SECONDS = 10.0

EventKind = Literal["made room", "refused", "pressure"]


@dataclass(frozen=True)
class LadderStep:
    """One way to make room.

    Attributes:
        name: What it does, for people ("empty the KV pool").
        action: Does it; returns whether there was anything to give back.
    """

    name: str
    action: Callable[[], bool]


@dataclass(frozen=True)
class GuardEvent:
    """Something the guard did.

    Attributes:
        seconds: When, on ``time.monotonic``.
        kind: What happened.
        detail: In words.
    """

    seconds: float
    kind: EventKind
    detail: str


class MemoryGuard:
    """Keeps the process inside the tightest of its limits.

    Args:
        settings: The user's limits.
        root: Where ``proc`` and ``sys`` are.

    Attributes:
        events: What it did, the latest last.
        device_bytes: By graph, what a GPU or NPU took for it out of the system's memory, which no
            figure of this process shows.
    """

    def __init__(self, settings: MemorySettings | None = None, root: Path = Path("/")) -> None:
        self.settings = settings or MemorySettings()
        self._root = root
        self._steps: list[LadderStep] = []
        self._stall_answered = -math.inf
        self._slowdown = ""
        self._slowdown_logged = False
        self._lock = threading.RLock()
        self.events: deque[GuardEvent] = deque(maxlen=_EVENTS)
        self.device_bytes: dict[str, int] = {}

    def add_step(self, step: LadderStep) -> None:
        """Add the next step of the ladder; the gentlest comes first."""
        self._steps.append(step)

    def limits(self) -> list[Limit]:
        """Every limit in force, tightest first."""
        held = sum(self.device_bytes.values())
        return current_limits(self.settings, self._root, device_bytes=held)

    def available_memory(self) -> int:
        """The system's MemAvailable in bytes."""
        return available_memory(self._root)

    def tightest(self, *, mapped: bool = False) -> Limit | None:
        """The limit with the least left, among those that apply.

        Args:
            mapped: Whether mappings of files are at issue; only RLIMIT_AS counts those.
        """
        limits = (limit for limit in self.limits() if not limit.soft)
        return next((limit for limit in limits if limit.mappings_count or not mapped), None)

    def reserve(self, needed: int, purpose: str, *, mapped: int = 0) -> None:
        """Make sure that memory can grow.

        Args:
            needed: Bytes of anonymous memory about to be taken.
            purpose: What for, in words.
            mapped: Bytes of files about to be mapped besides.

        Raises:
            MemoryBudgetError: There is no room and none can be made.
        """
        short = self._after_ladder(needed, purpose, mapped)
        if short is not None:
            error = _refusal(needed + (mapped if short.mappings_count else 0), purpose, short)
            self.note("refused", error.message)
            raise error

    def make_room(self, needed: int, purpose: str) -> bool:
        """Like `reserve`, but where it would raise return False."""
        return self._after_ladder(needed, purpose, 0) is None

    def has_room(self, needed: int, *, soft: bool = True) -> bool:
        """Whether so many bytes fit as things are, without making room.

        Args:
            needed: Bytes of anonymous memory.
            soft: Whether soft limits are to be kept as well.
        """
        return self._short(needed, 0) is None and not (
            soft and any(limit.available < needed for limit in self._soft_limits())
        )

    def check(self, purpose: str, needed: int = 0) -> None:
        """Look between two steps of a run whether others have taken what was free.

        Above a soft limit the ladder runs; overdrawn limits end the run.

        Args:
            purpose: What goes on, in words.
            needed: Bytes that the next step takes for a while.

        Raises:
            MemoryBudgetError: There is no room for that, and none can be made.
        """
        if (reason := self._pressure()) is not None:
            with self._lock:
                gave = next((step for step in self._steps if step.action()), None)
                if gave is not None:
                    self.note("pressure", f"{gave.name}: {reason}")
                else:
                    self._see_whether_slowed()
        self.reserve(needed, purpose)

    def note(self, kind: EventKind, detail: str) -> None:
        """Remember something that was done about memory."""
        self.events.append(GuardEvent(time.monotonic(), kind, detail))

    def slowdown(self) -> str:
        """Why the kernel slowed this process down since the last call; empty if it did not."""
        reason, self._slowdown = self._slowdown, ""
        return reason

    def _see_whether_slowed(self) -> None:
        for limit in self._soft_limits():
            if limit.available < 0 and limit.name != SOFT_LIMIT:
                self._slowdown = (
                    f"The kernel slows this process down: {_mib(limit.used)} MiB are over "
                    f"{limit.name} ({_mib(limit.limit)} MiB)."
                )
                if not self._slowdown_logged:
                    _LOG.warning(self._slowdown)
                self._slowdown_logged = True

    def _after_ladder(self, needed: int, purpose: str, mapped: int) -> Limit | None:
        """Make room; the limit that is still short, or None."""
        with self._lock:
            short = self._short(needed, mapped)
            for step in self._steps:
                if short is None:
                    return None
                if step.action():
                    self.note("made room", f"{step.name} for {purpose}")
                # Even a step with nothing of its own to give may have trimmed the heap.
                short = self._short(needed, mapped)
            return short

    def _pressure(self) -> str | None:
        """Why something should be given back now, although no limit is near; None if not."""
        for limit in self._soft_limits():
            if limit.available < 0:
                used, most = limit.used // _MIB, limit.limit // _MIB
                return f"{used} MiB is over the {limit.name} of {most} MiB"
        now = time.monotonic()
        if now - self._stall_answered < _STALL_SECONDS:
            return None
        stalled = memory_stall_percent(self._root)
        if stalled is not None and stalled > _STALL_PERCENT:
            self._stall_answered = now
            return f"tasks waited for memory {stalled:.0f} % of the last 10 s"
        return None

    def _soft_limits(self) -> list[Limit]:
        return [limit for limit in self.limits() if limit.soft]

    def _short(self, needed: int, mapped: int) -> Limit | None:
        """The first limit that does not have room, or None."""
        for limit in self.limits():
            if limit.soft:
                continue
            wanted = needed + (mapped if limit.mappings_count else 0) + MARGIN_BYTES
            if limit.available < wanted:
                return limit
        return None


def _refusal(needed: int, purpose: str, limit: Limit) -> MemoryBudgetError:
    spare = max(limit.available - MARGIN_BYTES, 0)
    wants = f"needs {_mib(needed)} MiB more memory" if needed else "cannot go on"
    return MemoryBudgetError(
        f"{purpose} {wants}; {limit.name} ({_mib(limit.limit)} MiB) leaves {_mib(spare)} MiB.",
        remedy="Raise the limit, end other programs, run 'boardvoice prepare', "
        "or use a smaller bundle, shorter text or shorter reference.",
        needed=needed,
        available=spare,
        limited_by=limit.name,
    )


def _mib(count: int) -> int:
    return -(-count // _MIB)
