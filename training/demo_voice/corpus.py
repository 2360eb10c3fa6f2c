"""Teacher speech on disk, in shards that are written whole and read as one stream."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from training.demo_voice.teacher import FRAME, HibariTeacher, Pitch
from training.demo_voice.texts import TextGenerator, closed_sentences

SHARD = 500
TRAIN_SEED = 7


@dataclass(frozen=True)
class Corpus:
    """Sentences and what the teacher made of them.

    Attributes:
        texts: One per utterance.
        lengths: Samples per utterance.
        audio: All utterances in a row, 16 bit.
        phonemes: Phoneme per latent frame, in a row.
        words: Word index per latent frame, in a row; -2 where hibari's words are not the text's.
    """

    texts: list[str]
    lengths: NDArray[np.int64]
    audio: NDArray[np.int16]
    phonemes: NDArray[np.int16]
    words: NDArray[np.int16]

    @classmethod
    def load(cls, folder: Path, limit: int | None = None) -> Corpus:
        """All shards of ``folder``, or the first ``limit``.

        Raises:
            FileNotFoundError: There is none.
        """
        paths = cls.paths(folder)[:limit]
        if not paths:
            raise FileNotFoundError(f"{folder} holds no shard; run the stage 'teacher' first")
        return cls.read(paths)

    @classmethod
    def read(cls, paths: list[Path]) -> Corpus:
        """These shards."""
        texts: list[str] = []
        parts: list[list[NDArray[np.int16]]] = []
        for path in paths:
            with np.load(path) as arrays:
                texts += json.loads(str(arrays["texts"]))
                parts.append([arrays[k] for k in ("lengths", "audio", "phonemes", "words")])
        lengths, audio, phonemes, words = (
            np.concatenate(part) for part in zip(*parts, strict=True)
        )
        return cls(texts, lengths.astype(np.int64), audio, phonemes, words)

    @staticmethod
    def paths(folder: Path) -> list[Path]:
        """Files of the shards, in order."""
        return sorted(folder.glob("shard_*.npz"))

    @property
    def starts(self) -> NDArray[np.int64]:
        """First sample of each utterance."""
        return np.cumsum(self.lengths) - self.lengths

    def utterance(self, index: int) -> NDArray[np.float32]:
        """Audio within ±1."""
        start = self.starts[index]
        audio = self.audio[start : start + self.lengths[index]].astype(np.float32)
        return audio / np.float32(32767)


def held_out_texts() -> list[str]:
    """The sentences that nothing is trained on: those that ``boardvoice evaluate`` speaks."""
    return (files("boardvoice") / "evaluation" / "sentences.txt").read_text("utf-8").splitlines()


def make(folder: Path, count: int, pitch: Pitch) -> None:
    """Write ``count`` training utterances and the test set; shards that are there stay."""
    teacher = HibariTeacher(pitch)
    tests = held_out_texts()
    _write_shard(folder / "test" / "shard_0000.npz", teacher, tests, 0)
    _write_shard(folder / "shard_closed.npz", teacher, closed_sentences(), 10**6)
    texts = TextGenerator(TRAIN_SEED, frozenset(tests)).take(count)
    for start in range(0, count, SHARD):
        path = folder / f"shard_{start // SHARD:04d}.npz"
        _write_shard(path, teacher, texts[start : start + SHARD], start)


def _write_shard(path: Path, teacher: HibariTeacher, texts: list[str], first: int) -> None:
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    said = [teacher.say(text, first + index) for index, text in enumerate(texts)]
    audio = np.concatenate([item.audio for item in said])
    unknown = [np.full(len(item.audio) // FRAME, -2, np.int16) for item in said]
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        np.savez(
            file,
            texts=np.asarray(json.dumps(texts)),
            lengths=np.asarray([len(item.audio) for item in said]),
            audio=np.round(np.clip(audio, -1, 1) * 32767).astype(np.int16),
            phonemes=np.concatenate([item.phonemes for item in said]),
            words=np.concatenate(
                [u if s.words is None else s.words for s, u in zip(said, unknown, strict=True)]
            ),
        )
    os.replace(part, path)
