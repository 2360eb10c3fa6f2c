"""One request: its text, piece by piece, each in a turn of its own."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from boardvoice.server.audio_encoder import AudioEncoder
from boardvoice.server.run_figures import account
from boardvoice.server.speech_run import SpeechRun
from boardvoice.server.turns import Ticket
from boardvoice.wyoming.desk import Desk
from boardvoice.wyoming.sentence_feed import SentenceFeed
from edge_runtime.audio.load import AudioSource
from edge_runtime.text.normalize import normalize_text
from edge_runtime.voices.stored_voice import StoredVoice

FloatArray = npt.NDArray[np.float32]
Write = Callable[[Any], Awaitable[None]]
_WIDTH = 2
# As much of what was spoken as a later piece takes as its voice; a longer text does so too.
_ANCHOR_S = 7.68


class Utterance:
    """Speaks what its feed hands out.

    Args:
        desk: The server.
        voice: Name of the voice.
        feed: The text.
        streamed: Whether the client asked by ``synthesize-start``.
        write: Sends an event.
        gone: Done when the client has gone away.

    Attributes:
        feed: The text.
        ticket: The turn that it has or waits for, or None.
    """

    def __init__(
        self,
        desk: Desk,
        voice: str,
        feed: SentenceFeed,
        *,
        streamed: bool,
        write: Write,
        gone: asyncio.Future[None],
    ) -> None:
        self._desk = desk
        self._voice = voice
        self._streamed = streamed
        self._write = write
        self._gone = gone
        # One seed and one voice for all pieces, drawn here.
        self._seed = secrets.randbits(31)
        self._anchor = np.zeros(0, np.float32)
        self.feed = feed
        self.ticket: Ticket | None = None

    async def speak(self) -> None:
        """Speak to the end of the text.

        Raises:
            Refusal: No turn came.
            BoardvoiceError: The text cannot be spoken.
            ConnectionError: The client went away, or takes nothing.
        """
        from wyoming.tts import SynthesizeStopped

        while (text := await self.feed.take()) is not None:
            await self._piece(normalize_text(text))
        if self._streamed:
            await self._write(SynthesizeStopped().event())

    async def _piece(self, text: str) -> None:
        desk = self._desk
        self.ticket = ticket = Ticket(None)
        asked = began = time.monotonic()
        try:
            if self._gone.done():
                raise ConnectionError("The client went away.")
            await desk.turns.take(ticket, self._gone)
            began = time.monotonic()
            desk.figures.see("boardvoice_queue_seconds", began - asked)
            await self._run(text, ticket)
        finally:
            self.ticket = None
            desk.turns.give(ticket, time.monotonic() - began)

    async def _run(self, text: str, ticket: Ticket) -> None:
        from wyoming.audio import AudioChunk, AudioStart, AudioStop

        voice = self._desk.loaded.voice()
        form = {"rate": voice.sample_rate, "width": _WIDTH, "channels": 1}
        run = SpeechRun(
            lambda: voice.stream(
                text, reference=self._reference(), cancel=ticket.cancel, seed=self._seed
            ),
            AudioEncoder("pcm", voice.sample_rate, voice.sample_rate, 1.0),
            ticket.cancel,
        )
        sent = 0
        try:
            async for data in run.pieces():
                if not sent:
                    await self._write(AudioStart(**form, timestamp=0).event())
                at = sent * 1000 // (_WIDTH * voice.sample_rate)
                await self._write(AudioChunk(**form, audio=data, timestamp=at).event())
                sent += len(data)
                self._keep(data, voice.sample_rate)
            if not run.complete:
                # Half an answer must not look like a whole one.
                raise ConnectionError("The run was ended.")
            await self._write(AudioStop(timestamp=sent * 1000 // (_WIDTH * form["rate"])).event())
        finally:
            await run.close()
            account(run, self._desk.loaded, self._desk.figures)

    def _reference(self) -> AudioSource | StoredVoice | None:
        """The voice's own recording, or else what was spoken so far."""
        named = self._desk.loaded.reference(self._voice)
        if named is not None or not len(self._anchor):
            return named
        return self._anchor, self._desk.loaded.voice().sample_rate

    def _keep(self, data: bytes, sample_rate: int) -> None:
        missing = round(_ANCHOR_S * sample_rate) - len(self._anchor)
        if self._streamed and missing > 0:
            samples = np.frombuffer(data, "<i2")[:missing].astype(np.float32)
            self._anchor = np.concatenate([self._anchor, samples / np.float32(32768)])
