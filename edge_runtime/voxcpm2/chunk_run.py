"""Speaks the chunks of one request: as they come, or again until an attempt is good."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edge_runtime.cancel import CancelToken
from edge_runtime.noise import Noise
from edge_runtime.speech import ChunkReport, Progress, SpeechMetrics, SpeechOptions
from edge_runtime.voxcpm2.flow import FlowSolver
from edge_runtime.voxcpm2.model import Utterance, VoxCpm2Model
from edge_runtime.voxcpm2.prompt import VoicePrompt

FloatArray = npt.NDArray[np.float32]
MakeNoise = Callable[[int, int], Noise]
OnProgress = Callable[[Progress], None]


@dataclass(frozen=True)
class Chunk:
    """One chunk of the text.

    Attributes:
        text: What to say.
        index: Its place, from 0.
        count: Chunks of the text.
    """

    text: str
    index: int
    count: int


@dataclass(frozen=True)
class _Attempt:
    utterance: Utterance
    audio: list[FloatArray]
    seed: int


@dataclass(frozen=True)
class ChunkRun:
    """What all chunks of a request share.

    Attributes:
        model: Speaks one utterance.
        options: How to speak.
        solver: Flow solver for these options.
        metrics: Takes times, sizes and chunk reports.
        cancel: Ends the run within one patch.
        make_noise: Makes a chunk's noise from a seed and the chunk's index.
        progress: Told after every patch, or None.
    """

    model: VoxCpm2Model
    options: SpeechOptions
    solver: FlowSolver
    metrics: SpeechMetrics
    cancel: CancelToken
    make_noise: MakeNoise
    progress: OnProgress | None

    def streamed(
        self, chunk: Chunk, voice: VoicePrompt, spoken: list[FloatArray]
    ) -> Iterator[FloatArray]:
        """Yield one attempt's audio as it comes; its patches end up in ``spoken``."""
        seed = self.metrics.seed
        utterance, audio = self._utterance(chunk, voice, seed)
        try:
            with closing(audio):
                for samples in audio:
                    self._report(chunk, utterance)
                    yield samples
        finally:
            spoken.extend(utterance.patches)
            self._note(chunk, utterance, seed, attempts=1)

    def kept(
        self, chunk: Chunk, voice: VoicePrompt, spoken: list[FloatArray]
    ) -> Iterator[FloatArray]:
        """Speak until an attempt is good, then yield it; the shortest when none is."""
        best: _Attempt | None = None
        most = self.options.retry_times if self.options.retry_badcase else 1
        for attempts in range(1, most + 1):
            attempt = self._attempt(chunk, voice, self.metrics.seed + attempts - 1)
            patches, utterance = len(attempt.audio), attempt.utterance
            good = patches < utterance.tokens * self.options.retry_ratio
            if good or self.cancel.cancelled or best is None or patches < len(best.audio):
                best = attempt
            if good or self.cancel.cancelled:
                break
        else:
            if self.options.retry_badcase and best is not None:
                self.metrics.warnings.append(
                    f"Chunk {chunk.index + 1} ran to {len(best.audio)} patches for "
                    f"{best.utterance.tokens} tokens in each of {most} attempts; "
                    "the shortest is kept."
                )
        assert best is not None, "there is at least one attempt"
        self._note(chunk, best.utterance, best.seed, attempts=attempts)
        spoken.extend(best.utterance.patches)
        yield from best.audio

    def _attempt(self, chunk: Chunk, voice: VoicePrompt, seed: int) -> _Attempt:
        utterance, audio = self._utterance(chunk, voice, seed)
        pieces = []
        # Closed even if the caller's progress function raises: it holds the KV buffers.
        with closing(audio):
            for samples in audio:
                pieces.append(samples)
                self._report(chunk, utterance)
                self.metrics.mark_first_audio()
        return _Attempt(utterance, pieces, seed)

    def _utterance(
        self, chunk: Chunk, voice: VoicePrompt, seed: int
    ) -> tuple[Utterance, Generator[FloatArray, None, None]]:
        noise = self.make_noise(seed, chunk.index)
        return self.model.speak(
            chunk.text, voice, self.options, self.solver, noise, self.metrics, self.cancel
        )

    def _report(self, chunk: Chunk, utterance: Utterance) -> None:
        if self.progress is not None:
            patches, limit = len(utterance.patches), utterance.limit
            self.progress(Progress(chunk.index, chunk.count, patches, limit))

    def _note(self, chunk: Chunk, utterance: Utterance, seed: int, *, attempts: int) -> None:
        self.metrics.chunks.append(
            ChunkReport(
                text=chunk.text,
                tokens=utterance.tokens,
                prefix_rows=utterance.prefix_rows,
                patches=len(utterance.patches),
                stop_reason=utterance.stop_reason,
                attempts=attempts,
                seed=seed,
            )
        )
