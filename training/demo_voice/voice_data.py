"""Training rows of the voice: tokens, latents and what is spoken when."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from training.demo_voice.corpus import Corpus
from training.demo_voice.latent_space import LatentSpace
from training.demo_voice.teacher import FRAME
from training.demo_voice.tokens import (
    AUDIO_START,
    REFERENCE_END,
    REFERENCE_START,
    VoiceTokens,
)

PATCH = 4
_PAIRS, _REFERENCES = 0.12, 0.08
_LONGEST_REFERENCE = 12


@dataclass(frozen=True)
class Said:
    """One request.

    Attributes:
        sentences: Indices of what is spoken, in a row.
        reference: Index of a sentence whose audio comes first, as the voice to speak with.
        texts: Indices of sentences whose words stand in front instead of the right ones.
    """

    sentences: tuple[int, ...]
    reference: int | None = None
    texts: tuple[int, ...] = ()


@dataclass(frozen=True)
class VoiceBatch:
    """A padded batch; what is per audio row lies in a row over all requests.

    Attributes:
        tokens: [B, T].
        is_audio: [B, T], bool.
        patches: Of all audio rows, [M, P, D].
        scored: Which of those are to be spoken, and not reference, [M], bool; N are.
        sentence: Row of the batch that each belongs to, [M].
        before: The patch in front of each spoken one, zeros for the first, [N, P, D].
        phonemes: [N, P].
        stop: 1 for the last patch of a request, [N].
        spoken: Text rows that are spoken in each patch, [N, T], bool; none where unknown.
    """

    tokens: Tensor
    is_audio: Tensor
    patches: Tensor
    scored: Tensor
    sentence: Tensor
    before: Tensor
    phonemes: Tensor
    stop: Tensor
    spoken: Tensor


class VoiceData:
    """All sentences, with their latents."""

    def __init__(self, folder: Path, space: LatentSpace, tokens: VoiceTokens) -> None:
        self.patches: list[Tensor] = []
        self.phonemes: list[Tensor] = []
        self.words: list[Tensor] = []
        self.tokens: list[list[list[int]]] = []
        known: dict[str, list[int]] = {}
        for path in Corpus.paths(folder):
            corpus = Corpus.read([path])
            self._add(corpus, _latents(path, corpus, space), tokens, known)
        self.lengths = np.asarray(
            [sum(map(len, t)) + 1 + len(p) for t, p in zip(self.tokens, self.patches, strict=True)]
        )
        self.order = np.argsort(self.lengths, kind="stable")

    def _add(
        self,
        corpus: Corpus,
        latents: Tensor,
        tokens: VoiceTokens,
        known: dict[str, list[int]],
    ) -> None:
        starts = corpus.starts // FRAME
        for index, (text, length) in enumerate(zip(corpus.texts, corpus.lengths, strict=True)):
            part = slice(starts[index], starts[index] + length // FRAME)
            self.patches.append(latents[part].reshape(-1, PATCH, latents.shape[-1]))
            for store, labels in ((self.phonemes, corpus.phonemes), (self.words, corpus.words)):
                store.append(torch.from_numpy(labels[part].astype(np.int64)).view(-1, PATCH))
            for word in text.split():
                if word not in known:
                    known[word] = tokens.encode(word)[0]
            self.tokens.append([known[word] for word in text.split()])

    def batch(self, step: int, size: int, seed: int) -> VoiceBatch:
        """Requests of about one length, drawn by ``(seed, step)``.

        Most are one sentence. Some are two in a row, which is what longer texts are; some follow
        a reference, as the later pieces of a long text do.
        """
        source = np.random.default_rng((seed, step))
        pool = min(4 * size, len(self.order))
        start = source.integers(0, len(self.order) - pool + 1)
        picks = source.permutation(self.order[start : start + pool])[:size].tolist()
        kind = source.random()
        if kind < _PAIRS and size > 1:
            half = size // 2
            return self.gather(
                [Said((a, b)) for a, b in zip(picks[:half], picks[half : 2 * half], strict=True)]
            )
        if kind < _PAIRS + _REFERENCES and size > 1:
            count = -(-size * 2 // 3)
            return self.gather(
                [Said((pick,), reference=picks[at - 1]) for at, pick in enumerate(picks[:count])]
            )
        return self.gather([Said((pick,)) for pick in picks])

    def gather(self, requests: list[Said]) -> VoiceBatch:
        """A batch of these requests."""
        rows = [self._rows(request) for request in requests]
        width = max(len(row.tokens) for row in rows)
        tokens = torch.zeros(len(rows), width, dtype=torch.long)
        is_audio = torch.zeros(len(rows), width, dtype=torch.bool)
        spoken = []
        for at, row in enumerate(rows):
            tokens[at, : len(row.tokens)] = row.tokens
            is_audio[at, : len(row.tokens)] = row.tokens < 0
            spoken.append(functional.pad(row.spoken, (0, width - row.spoken.shape[1])))
        return VoiceBatch(
            tokens=tokens.clamp(min=0),
            is_audio=is_audio,
            patches=torch.cat([row.patches for row in rows]),
            scored=torch.cat([row.scored for row in rows]),
            before=torch.cat([row.before for row in rows]),
            phonemes=torch.cat([row.phonemes for row in rows]),
            stop=torch.cat([row.stop for row in rows]),
            spoken=torch.cat(spoken),
            sentence=torch.cat(
                [torch.full((len(row.patches),), at) for at, row in enumerate(rows)]
            ),
        )

    def _rows(self, request: Said) -> _Rows:
        """One request; a row that is audio has the token -1."""
        texts = request.texts or request.sentences
        words = [word for index in texts for word in self.tokens[index]]
        flat = [token for word in words for token in word]
        patches = torch.cat([self.patches[index] for index in request.sentences])
        lead = patches[:0]
        head: list[int] = []
        if request.reference is not None:
            lead = self.patches[request.reference][:_LONGEST_REFERENCE]
            head = [REFERENCE_START, *[-1] * len(lead), REFERENCE_END]
        tokens = torch.tensor([*head, *flat, AUDIO_START, *[-1] * len(patches)])
        of_word = torch.full((len(tokens),), -1)
        of_word[len(head) : len(head) + len(flat)] = torch.tensor(
            [at for at, word in enumerate(words) for _ in word]
        )
        said, first = [], 0
        for index in request.sentences:
            labels = self.words[index]
            said.append(torch.where(labels >= 0, labels + first, labels))
            first += len(self.tokens[index])
        labels = torch.cat(said)
        stop = torch.zeros(len(patches), dtype=torch.long)
        stop[-1] = 1
        return _Rows(
            tokens=tokens,
            patches=torch.cat([lead, patches]),
            scored=torch.arange(len(lead) + len(patches)) >= len(lead),
            before=torch.cat([torch.zeros_like(patches[:1]), patches[:-1]]),
            phonemes=torch.cat([self.phonemes[index] for index in request.sentences]),
            stop=stop,
            spoken=((labels[:, :, None] == of_word) & (labels >= 0)[:, :, None]).any(1),
        )


@dataclass(frozen=True)
class _Rows:
    tokens: Tensor
    patches: Tensor
    scored: Tensor
    before: Tensor
    phonemes: Tensor
    stop: Tensor
    spoken: Tensor


def _latents(path: Path, corpus: Corpus, space: LatentSpace) -> Tensor:
    """Latents of a shard in a row; kept beside it, since making them takes minutes."""
    kept = path.with_name(path.stem.replace("shard", "latents") + ".npy")
    if not kept.exists():
        made = torch.cat(
            [
                space.encode(torch.from_numpy(corpus.utterance(index)))
                for index in range(len(corpus.texts))
            ]
        )
        with kept.with_suffix(".part").open("wb") as file:
            np.save(file, made.numpy())
        os.replace(kept.with_suffix(".part"), kept)
    return torch.from_numpy(np.load(kept))
