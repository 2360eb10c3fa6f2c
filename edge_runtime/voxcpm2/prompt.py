"""The prefix of a request: reference, text and prompt audio as rows for the LM.

Source: `_generate_with_prompt_cache` and `_make_ref_prefix` of `voxcpm2.py`, voxcpm 2.0.3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edge_runtime.backends.protocol import Graph
from edge_runtime.bundle import Bundle
from edge_runtime.errors import BundleError
from edge_runtime.tokenizer import Tokenizer
from edge_runtime.voxcpm2.spec import VoxCpm2Spec

FloatArray = npt.NDArray[np.float32]

# Patches before the reply that the VAE decoder is fed first, so that it starts warm.
_CONTEXT_PATCHES = 3
# Patches encoded per call: bounds scratch memory for long references.
ENCODE_PATCHES = 64


@dataclass(frozen=True)
class VoicePrompt:
    """Encoded audio that a request starts from.

    Attributes:
        reference: Patches [N, P, D] of the voice to speak with, or None.
        prompt: Patches [N, P, D] of speech to go on from, or None.
        prompt_text: What is said in `prompt`.
    """

    reference: FloatArray | None = None
    prompt: FloatArray | None = None
    prompt_text: str = ""

    @property
    def rows(self) -> int:
        """KV rows that the audio takes, with the two tokens around a reference."""
        reference = 0 if self.reference is None else len(self.reference) + 2
        return reference + (0 if self.prompt is None else len(self.prompt))


@dataclass(frozen=True)
class Prefix:
    """Rows for prefill, and what the first patch needs.

    Attributes:
        reference: Patches [N, P, D] whose rows, with a token on each side, come first, or None.
            They depend on the voice alone and are kept for its next request.
        rows: [S, hidden], the rows after the reference's.
        is_audio: [S], 1 where the row is an encoded patch.
        last_patch: [P, D], the patch before the reply (zeros when the prefix ends in text).
        context: Patches [0..3, P, D] that warm up the VAE decoder.
        target_tokens: Tokens of the text to speak, without prompt text and control tokens.
    """

    reference: FloatArray | None
    rows: FloatArray
    is_audio: FloatArray
    last_patch: FloatArray
    context: FloatArray
    target_tokens: int

    @property
    def total_rows(self) -> int:
        """All rows before the first patch."""
        return len(self.rows) + (0 if self.reference is None else len(self.reference) + 2)


class PrefixBuilder:
    """Turns text and encoded audio into rows.

    Args:
        bundle: Holds the embedding table and the tokenizer.
        spec: Sizes.
        patch_encoder: ``patch_encoder.onnx``.
        look: Told the patches of every run of it beforehand; may raise.
    """

    def __init__(
        self,
        bundle: Bundle,
        spec: VoxCpm2Spec,
        patch_encoder: Graph,
        look: Callable[[int], None] | None = None,
    ) -> None:
        self._spec = spec
        self._look = look
        self._patch_encoder = patch_encoder
        self._tokenizer = Tokenizer.load(bundle.path(spec.tokenizer), spec.control.ids)
        self._table = _embedding_table(bundle, spec)
        if self._tokenizer.vocab_size > spec.embedding.vocab:
            raise BundleError(
                f"{bundle.path(spec.tokenizer)} has {self._tokenizer.vocab_size} tokens, the "
                f"embedding table {spec.embedding.vocab}.",
                remedy="Export again from a checkpoint whose tokenizer belongs to it.",
            )

    def count_tokens(self, text: str) -> int:
        """Tokens of a text.

        Raises:
            TextError: The text would become control tokens.
        """
        return len(self._tokenizer.encode(text))

    def build(self, text: str, voice: VoicePrompt) -> Prefix:
        """Build the prefix.

        Args:
            text: Normalised text to speak.
            voice: Encoded audio.

        Raises:
            TextError: The text would become control tokens.
        """
        spec = self._spec
        spoken = voice.prompt_text + text if voice.prompt is not None else text
        tokens = [*self._tokenizer.encode(spoken), spec.control.audio_start]
        segments: list[tuple[FloatArray, float]] = []
        audio: list[FloatArray] = []
        if voice.reference is not None:
            audio.append(voice.reference)
        segments.append((self._embed(tokens), 0.0))
        last_patch = np.zeros((spec.patch_size, spec.latent_dim), np.float32)
        context = np.empty((0, spec.patch_size, spec.latent_dim), np.float32)
        if voice.prompt is not None:
            segments.append((self.encode_patches(voice.prompt), 1.0))
            audio.append(voice.prompt)
            last_patch = voice.prompt[-1]
            context = np.concatenate(audio)[-_CONTEXT_PATCHES:]
        rows, is_audio = _joined(segments)
        return Prefix(
            reference=voice.reference,
            rows=rows,
            is_audio=is_audio,
            last_patch=last_patch,
            context=context,
            target_tokens=self.count_tokens(text),
        )

    def reference_rows(self, reference: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Rows [N + 2, hidden] of a reference between its two tokens, and which are audio."""
        control = self._spec.control
        return _joined(
            [
                (self._embed([control.ref_audio_start]), 0.0),
                (self.encode_patches(reference), 1.0),
                (self._embed([control.ref_audio_end]), 0.0),
            ]
        )

    def encode_patches(self, patches: FloatArray) -> FloatArray:
        """Encode patches [N, P, D] to LM rows [N, hidden]."""
        encoded = np.empty((len(patches), 1, self._spec.hidden), np.float32)
        for start in range(0, len(patches), ENCODE_PATCHES):
            piece = slice(start, start + ENCODE_PATCHES)
            if self._look is not None:
                self._look(len(encoded[piece]))
            binding = self._patch_encoder.bind()
            binding.input("patches", np.ascontiguousarray(patches[piece]))
            # Ours, not the arena's, which could not be given back with it.
            binding.output("rows", encoded[piece])
            binding.run(give_back=True)
        return encoded[:, 0]

    def _embed(self, tokens: list[int]) -> FloatArray:
        rows: FloatArray = self._table[np.asarray(tokens)].astype(np.float32)
        rows *= np.float32(self._spec.embedding.scale)
        return rows


def _joined(segments: list[tuple[FloatArray, float]]) -> tuple[FloatArray, FloatArray]:
    """Rows one after the other, and the flag of each row."""
    flags = [np.full(len(rows), flag, np.float32) for rows, flag in segments]
    return np.concatenate([rows for rows, _ in segments]), np.concatenate(flags)


def _embedding_table(bundle: Bundle, spec: VoxCpm2Spec) -> npt.NDArray[np.floating]:
    """Map the table: only the rows that are gathered are ever read."""
    dtype = np.dtype({"f32": "<f4", "f16": "<f2"}[spec.embedding.dtype])
    path = bundle.path(spec.embedding.file)
    shape = (spec.embedding.vocab, spec.hidden)
    if path.stat().st_size != dtype.itemsize * shape[0] * shape[1]:
        raise BundleError(
            f"{path} does not hold {shape[0]} x {shape[1]} {spec.embedding.dtype} values.",
            remedy="Export the bundle again.",
        )
    return np.memmap(path, dtype, mode="r", shape=shape)
