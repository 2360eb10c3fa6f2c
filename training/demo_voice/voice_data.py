"""Training rows of the voice: tokens, latents and what is spoken when."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from training.demo_voice.corpus import Corpus
from training.demo_voice.latent_space import LatentSpace
from training.demo_voice.teacher import FRAME
from training.demo_voice.tokens import AUDIO_START, VoiceTokens

PATCH = 4


@dataclass(frozen=True)
class VoiceBatch:
    """A padded batch; what is per audio row lies in a row over all sentences.

    Attributes:
        tokens: [B, T].
        is_audio: [B, T], bool.
        patches: [N, P, D].
        before: The patch in front of each, zeros for the first, [N, P, D].
        phonemes: [N, P].
        stop: 1 for the last patch of a sentence, [N].
        spoken: Text rows that are spoken in each patch, [N, T], bool; none where unknown.
        sentence: Row of the batch that each patch belongs to, [N].
    """

    tokens: Tensor
    is_audio: Tensor
    patches: Tensor
    before: Tensor
    phonemes: Tensor
    stop: Tensor
    spoken: Tensor
    sentence: Tensor


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
        """Sentences of about one length, drawn by ``(seed, step)``."""
        source = np.random.default_rng((seed, step))
        pool = min(4 * size, len(self.order))
        start = source.integers(0, len(self.order) - pool + 1)
        return self.gather(source.permutation(self.order[start : start + pool])[:size].tolist())

    def gather(self, indices: list[int], texts: list[int] | None = None) -> VoiceBatch:
        """A batch of these sentences; ``texts`` puts other sentences' words in front."""
        texts = texts or indices
        words = [self.tokens[index] for index in texts]
        heads = [sum(map(len, word)) + 1 for word in words]
        counts = [len(self.patches[index]) for index in indices]
        rows = max(h + c for h, c in zip(heads, counts, strict=True))
        tokens = torch.zeros(len(indices), rows, dtype=torch.long)
        is_audio = torch.zeros(len(indices), rows, dtype=torch.bool)
        spoken, before, stop, sentence = [], [], [], []
        for at, index in enumerate(indices):
            flat = [token for word in words[at] for token in word] + [AUDIO_START]
            tokens[at, : len(flat)] = torch.tensor(flat)
            is_audio[at, heads[at] : heads[at] + counts[at]] = True
            patches = self.patches[index]
            before.append(torch.cat([torch.zeros_like(patches[:1]), patches[:-1]]))
            stop.append(torch.zeros(counts[at], dtype=torch.long))
            stop[-1][-1] = 1
            sentence.append(torch.full((counts[at],), at))
            spoken.append(self._spoken(index, words[at], rows))
        return VoiceBatch(
            tokens,
            is_audio,
            torch.cat([self.patches[index] for index in indices]),
            torch.cat(before),
            torch.cat([self.phonemes[index] for index in indices]),
            torch.cat(stop),
            torch.cat(spoken),
            torch.cat(sentence),
        )

    def _spoken(self, index: int, words: list[list[int]], rows: int) -> Tensor:
        of_word = torch.full((rows,), -1)
        of_word[: sum(map(len, words))] = torch.tensor(
            [at for at, word in enumerate(words) for _ in word]
        )
        said = self.words[index]
        return ((said[:, :, None] == of_word) & (said >= 0)[:, :, None]).any(1)


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
