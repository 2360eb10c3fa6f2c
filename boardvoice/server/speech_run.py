"""One run in a thread of its own, read piece by piece from the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from boardvoice.server.audio_encoder import AudioEncoder
from boardvoice.server.pulse import Pulse
from edge_runtime.cancel import CancelToken
from edge_runtime.errors import BoardvoiceError
from edge_runtime.voice import SpeechStream

_LOG = logging.getLogger("boardvoice")
# Encoded pieces, one per patch, that wait for a slow client: 20 s of audio.
_AHEAD = 128
# How often a thread that waits for room looks whether there is a reader at all.
_LOOK_S = 0.5


class _NobodyReadsError(Exception):
    """The event loop ended first: the server was told to stop and its grace time is over."""


@dataclass(frozen=True)
class _End:
    error: BaseException | None = None


class SpeechRun:
    """Iterate `pieces`, then `close` it, however that went.

    Args:
        begin: Starts the stream; called in the thread.
        encoder: Makes bytes of its samples.
        cancel: Ends the run within one patch.
        pulse: Beats as the run gets on.

    Attributes:
        stream: The stream, once it was begun.
        complete: Whether all of the text was spoken.
    """

    def __init__(
        self,
        begin: Callable[[], SpeechStream],
        encoder: AudioEncoder,
        cancel: CancelToken,
        pulse: Pulse | None = None,
    ) -> None:
        self._begin = begin
        self._encoder = encoder
        self._cancel = cancel
        self._pulse = pulse or Pulse()
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[bytes | _End] = asyncio.Queue()
        self._room = threading.Semaphore(_AHEAD)
        self._ended = False
        self.stream: SpeechStream | None = None
        self.complete = False
        threading.Thread(target=self._work, name="boardvoice-run", daemon=True).start()

    async def pieces(self) -> AsyncIterator[bytes]:
        """Encoded audio, none of it empty; raises what the run raised."""
        while not self._ended:
            item = await self._queue.get()
            self._room.release()
            if isinstance(item, _End):
                self._ended = True
                if item.error is not None:
                    raise item.error
                return
            yield item

    async def close(self) -> None:
        """End the run and wait until nothing of it computes any more."""
        self._cancel.cancel()
        while not self._ended:
            self._ended = isinstance(await self._queue.get(), _End)
            self._room.release()

    def _work(self) -> None:
        end = _End()
        self._pulse.beat()
        try:
            with self._begin() as stream:
                self.stream = stream
                for samples in stream:
                    self._pulse.beat()
                    self._hand(self._encoder.push(samples))
            if not self._cancel.cancelled:
                self._hand(self._encoder.finish())
                self.complete = True
        except _NobodyReadsError:
            self._cancel.cancel()
        except BaseException as error:  # noqa: BLE001 - the reader raises it
            if not isinstance(error, (BoardvoiceError, MemoryError)):
                _LOG.exception("A run failed.")
            end = _End(error)
        finally:
            self._encoder.close()
            self._pulse.rest()
            with contextlib.suppress(_NobodyReadsError):
                self._put(end)

    def _hand(self, data: bytes) -> None:
        if data:
            self._put(data)

    def _put(self, item: bytes | _End) -> None:
        while not self._room.acquire(timeout=_LOOK_S):
            self._pulse.beat()
            if self._loop.is_closed():
                raise _NobodyReadsError
        try:
            self._loop.call_soon_threadsafe(self._queue.put_nowait, item)
        except RuntimeError:
            # The loop is closed.
            raise _NobodyReadsError from None
