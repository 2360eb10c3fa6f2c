"""Speaks a whole request: encodes its audio, cuts long texts, keeps one voice throughout."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from edge_runtime.bundle import Bundle
from edge_runtime.cancel import CancelToken
from edge_runtime.errors import CapacityError
from edge_runtime.resources import Resources
from edge_runtime.speech import SpeechMetrics, SpeechOptions, SpeechRequest
from edge_runtime.text.normalize import split_design
from edge_runtime.text.sentences import chunk_text
from edge_runtime.voices.stored_voice import EncodedVoice, StoredVoice
from edge_runtime.voxcpm2.chunk_run import Chunk, ChunkRun, MakeNoise, OnProgress
from edge_runtime.voxcpm2.encoder_fingerprint import encoder_fingerprint
from edge_runtime.voxcpm2.model import VoxCpm2Model
from edge_runtime.voxcpm2.prompt import VoicePrompt

FloatArray = npt.NDArray[np.float32]

# Patches of the first chunk that later chunks take as their reference when the request names
# none: without it every chunk would have a voice of its own. 48 patches are 7.7 s.
_ANCHOR_PATCHES = 48
# Rows that a chunk always gets beyond the audio it starts from.
_LEAST_ROWS = 128


class Speaker:
    """The VoxCPM2 family behind `Voice`. See `edge_runtime.voice.SpeechModel`.

    Args:
        bundle: An opened VoxCPM2 bundle.
        resources: The device.
    """

    def __init__(self, bundle: Bundle, resources: Resources) -> None:
        self._model = VoxCpm2Model(bundle, resources)
        self._overlap = resources.runtime.overlap_vae
        self._chunk_rows = resources.profile.text.chunk_rows
        self.sample_rate = self._model.sample_rate
        self.patch_seconds = self._model.patch_seconds
        self.encoder = encoder_fingerprint(bundle, self._model.spec)

    def kv_bytes(self) -> int:
        """Bytes of KV held now: by the running request, pooled, and kept for voices."""
        pool = self._model.pool
        return pool.live_bytes + pool.nbytes + self._model.store.nbytes

    def kv_row_bytes(self) -> int:
        """Bytes of one KV row."""
        return self._model.kv_shape.row_bytes

    def speak(
        self,
        request: SpeechRequest,
        options: SpeechOptions,
        metrics: SpeechMetrics,
        cancel: CancelToken,
        *,
        retry: bool,
        make_noise: MakeNoise,
        progress: OnProgress | None,
    ) -> Iterator[FloatArray]:
        """Yield the audio, patch by patch; with ``retry``, chunk by chunk once it is kept."""
        metrics.overlapped = self._overlap
        with metrics.timed("encode"):
            voice = self._encode(request, options, cancel)
        with metrics.timed("text"):
            chunks = self.plan(request.text, voice, options)
            if _cuts_words(chunks, request.text):
                metrics.warnings.append(
                    "Words are cut: a chunk of this few KV rows holds no whole sentence."
                )
        metrics.planned_chunks = len(chunks)
        solver = self._model.solver(options)
        run = ChunkRun(self._model, options, solver, metrics, cancel, make_noise, progress)
        for index, text in enumerate(chunks):
            spoken: list[FloatArray] = []
            speak = run.kept if retry else run.streamed
            yield from speak(Chunk(text, index, len(chunks)), voice, spoken)
            if cancel.cancelled:
                return
            if len(chunks) > 1 and voice.rows == 0:
                voice = VoicePrompt(reference=np.stack(spoken[: self.anchor_patches(options)]))

    def plan(self, text: str, voice: VoicePrompt, options: SpeechOptions) -> list[str]:
        """Cut a text into chunks that fit the row budget; a voice design leads every chunk.

        Raises:
            CapacityError: Not even a few words fit beside the audio.
        """
        model = self._model
        design, words = split_design(text)
        taken = model.rows_needed(design, voice, options)
        budget = self._budget(options)
        if options.chunk_rows is None:
            budget = min(max(budget, taken + _LEAST_ROWS), model.kv_shape.max_rows)
        if model.rows_needed(text, voice, options) <= budget:
            return [text]
        reserve = 0 if voice.rows else self.anchor_patches(options) + 2

        def fits(piece: str) -> bool:
            return model.rows_needed(design + piece, voice, options) + reserve <= budget

        try:
            return [design + piece for piece in chunk_text(words, fits)]
        except CapacityError as error:
            raise CapacityError(
                f"No text fits {budget} KV rows: voice design, reference, prompt audio and its "
                f"text take {taken + reserve} of them.",
                remedy="Shorten those, or allow more rows per chunk.",
            ) from error

    def _budget(self, options: SpeechOptions) -> int:
        """KV rows that a chunk may need."""
        return min(options.chunk_rows or self._chunk_rows, self._model.kv_shape.max_rows)

    def anchor_patches(self, options: SpeechOptions) -> int:
        """Patches of the first chunk that the others take as their reference."""
        return min(_ANCHOR_PATCHES, options.max_len, max(self._budget(options) // 4, 1))

    def _encode(
        self, request: SpeechRequest, options: SpeechOptions, cancel: CancelToken
    ) -> VoicePrompt:
        reference = prompt = None
        prompt_text = request.prompt_text or ""
        if isinstance(request.reference, StoredVoice):
            stored = request.reference
            encoded = self._stored(stored, cancel)
            reference = encoded.reference
            # A description is for the words alone, and could not stand before a transcript.
            if request.prompt_audio is None and not split_design(request.text)[0]:
                prompt = encoded.prompt
                prompt_text = "" if prompt is None else stored.prompt_text
        elif request.reference is not None:
            reference = self._model.encode(
                request.reference, pad="right", trim=options.trim_silence, cancel=cancel
            )
        if request.prompt_audio is not None:
            prompt = self._model.encode(
                request.prompt_audio, pad="left", trim=options.trim_silence, cancel=cancel
            )
        return VoicePrompt(reference, prompt, prompt_text)

    def encode(
        self, audio: tuple[FloatArray, int], *, prompt: bool, cancel: CancelToken
    ) -> EncodedVoice:
        """Encode the clip of a voice: as a reference, and as a prompt where its text is known."""
        sides = ("right", "left")[: 1 + prompt]
        return EncodedVoice(
            *(self._model.encode(audio, pad=side, trim=False, cancel=cancel) for side in sides)
        )

    def _stored(self, stored: StoredVoice, cancel: CancelToken) -> EncodedVoice:
        """A stored voice as this bundle's encoder makes it; from its clip where it has not yet."""
        encoded = stored.encoded(self.encoder)
        if encoded is None:
            encoded = self.encode(stored.audio(), prompt=bool(stored.transcript), cancel=cancel)
            stored.try_keep_encoded(self.encoder, encoded)
        return encoded


def _cuts_words(chunks: list[str], text: str) -> bool:
    """Whether two chunks meet inside a word of a script that has spaces."""
    return any(
        before[-1].isalpha() and after[:1].isalpha() and f"{before[-8:]}{after[:8]}" in text
        and not _is_ideograph(after[0])
        for before, after in pairwise(chunks)
    )  # fmt: skip


def _is_ideograph(character: str) -> bool:
    # Beyond the scripts that put spaces between words, roughly: Thai, Khmer, CJK, kana.
    return character >= "\u0e00"
