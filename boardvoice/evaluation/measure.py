"""Speaks a list of sentences with a voice and measures what comes out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
import soxr

from boardvoice.evaluation.checks import (
    FloatArray,
    ends_early,
    log_spectral_distance,
    longest_pause,
    repeats,
)
from boardvoice.evaluation.recogniser import RATE
from boardvoice.evaluation.words import normalized_words, word_errors
from edge_runtime.speech import SpeechOptions
from edge_runtime.voice import Voice

LONG_PAUSE_S = 1.0


class Hears(Protocol):
    """A recogniser.

    Attributes:
        name: What reports call it.
    """

    name: str

    def hear(self, audio: FloatArray) -> str:
        """Text of audio at 16 kHz."""
        ...


class Compares(Protocol):
    """A speaker model."""

    def similarity(self, audio: FloatArray) -> float:
        """Cosine of the voice in audio at 16 kHz with that of the reference."""
        ...


@dataclass(frozen=True)
class SpokenSentence:
    """One sentence, spoken once.

    Attributes:
        text, seed: What was asked for.
        heard: What the recogniser wrote.
        words, errors: Words of the text, and how many were wrong, missing or too many.
        seconds: Length.
        pause: Longest silence inside, in seconds.
        repeated: Words came twice.
        stopped_early: The last words are missing.
        ran_away: The model did not end by itself.
        distance: Log-spectral distance to the first bundle's audio, dB.
        similarity: To the reference's voice.
    """

    text: str
    seed: int
    heard: str
    words: int
    errors: int
    seconds: float
    pause: float
    repeated: bool
    stopped_early: bool
    ran_away: bool
    distance: float | None
    similarity: float | None


@dataclass(frozen=True)
class Evaluation:
    """All sentences of one bundle and one way to speak.

    Attributes:
        name: Of the row.
        sentences: In order of texts, then seeds.
        rtf: Wall seconds of speaking per second of audio.
    """

    name: str
    sentences: tuple[SpokenSentence, ...]
    rtf: float

    @property
    def wer(self) -> float:
        """Word errors in percent of the words."""
        words = sum(sentence.words for sentence in self.sentences)
        return 100 * sum(sentence.errors for sentence in self.sentences) / max(words, 1)

    def summary(self) -> dict[str, Any]:
        """Figures of the row."""

        def count(flag: Callable[[SpokenSentence], bool]) -> int:
            return sum(flag(sentence) for sentence in self.sentences)

        def mean(values: Iterable[float | None]) -> float | None:
            known = [value for value in values if value is not None]
            return round(float(np.mean(known)), 3) if known else None

        return {
            "name": self.name,
            "sentences": len(self.sentences),
            "wer": round(self.wer, 2),
            "runaways": count(lambda s: s.ran_away),
            "early_stops": count(lambda s: s.stopped_early),
            "repetitions": count(lambda s: s.repeated),
            "long_pauses": count(lambda s: s.pause > LONG_PAUSE_S),
            "distance_db": mean(s.distance for s in self.sentences),
            "similarity": mean(s.similarity for s in self.sentences),
            "seconds": round(sum(s.seconds for s in self.sentences), 1),
            "rtf": round(self.rtf, 3),
        }

    def as_dict(self) -> dict[str, Any]:
        """Summary and every sentence."""
        return {**self.summary(), "each": [asdict(sentence) for sentence in self.sentences]}


Spoken = dict[tuple[str, int], FloatArray]


def evaluate(
    voice: Voice,
    texts: Sequence[str],
    options: SpeechOptions,
    *,
    name: str,
    seeds: Sequence[int],
    recogniser: Hears,
    speaker: Compares | None = None,
    baseline: Spoken | None = None,
    told: Callable[[int], None] | None = None,
) -> tuple[Evaluation, Spoken]:
    """Speak every text with every seed, once each: bad attempts count, they are not retried.

    Args:
        voice: A loaded bundle.
        texts: What to say.
        options: How; seed and retry are set here.
        name: Of the row.
        seeds: One run of the texts each.
        recogniser: Hears the words.
        speaker: Compares the voice with a reference.
        baseline: Audio of the row that distances are measured to.
        told: Called with the number of sentences done.

    Returns:
        The figures, and the audio at 16 kHz by text and seed.
    """
    spoken: Spoken = {}
    sentences = []
    wall = 0.0
    for text in texts:
        wanted = normalized_words(text)
        for seed in seeds:
            speech = voice.say(text, options=options, seed=seed, retry_badcase=False)
            wall += speech.metrics.wall_s
            audio = speech.audio
            if speech.sample_rate != RATE:
                audio = soxr.resample(audio, speech.sample_rate, RATE)
            audio = spoken[text, seed] = np.asarray(audio, np.float32)
            heard = recogniser.hear(audio)
            got = normalized_words(heard)
            reference = baseline.get((text, seed)) if baseline else None
            sentences.append(
                SpokenSentence(
                    text=text,
                    seed=seed,
                    heard=heard,
                    words=len(wanted),
                    errors=word_errors(wanted, got),
                    seconds=len(audio) / RATE,
                    pause=longest_pause(audio, RATE),
                    repeated=repeats(wanted, got),
                    stopped_early=ends_early(wanted, got),
                    ran_away=speech.metrics.stop_reason != "stop",
                    distance=(
                        None if reference is None else log_spectral_distance(audio, reference)
                    ),
                    similarity=None if speaker is None else speaker.similarity(audio),
                )
            )
            if told is not None:
                told(len(sentences))
    total = sum(sentence.seconds for sentence in sentences)
    return Evaluation(name, tuple(sentences), wall / max(total, 1e-9)), spoken
