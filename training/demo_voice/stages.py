"""What each stage reads and writes under the state folder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from training.demo_voice.corpus import TRAIN_SEED, Corpus, held_out_texts
from training.demo_voice.texts import TextGenerator
from training.demo_voice.tokens import VoiceTokens

if TYPE_CHECKING:
    from torch import Tensor

    from training.demo_voice.latent_space import LatentSpace

UTTERANCES = 36000
TOKEN_TEXTS = 12000
CODEC_SHARDS = 5
SPACE_SECONDS = 1800
LATENT = 32
MERGES = 1200


@dataclass(frozen=True)
class State:
    """The state folder.

    Attributes:
        folder: Where everything of one training lies.
    """

    folder: Path

    @property
    def corpus(self) -> Path:
        """Teacher speech."""
        return self.folder / "corpus"

    def space(self) -> LatentSpace:
        """The latent space; fitted at the first call."""
        from training.demo_voice.latent_space import LatentSpace

        path = self.folder / "space.npz"
        if not path.exists():
            audio = self.stream(Corpus.load(self.corpus, CODEC_SHARDS))
            LatentSpace.fit(audio[: SPACE_SECONDS * 16000], LATENT).save(path)
        return LatentSpace.load(path)

    def tokens(self) -> VoiceTokens:
        """The tokenizer; learnt at the first call."""
        path = self.folder / "merges.json"
        if not path.exists():
            texts = TextGenerator(TRAIN_SEED, frozenset(held_out_texts())).take(TOKEN_TEXTS)
            path.write_text(json.dumps(VoiceTokens.learn(texts, MERGES).merges), encoding="utf-8")
        merges = json.loads(path.read_text(encoding="utf-8"))
        return VoiceTokens(tuple((first, second) for first, second in merges))

    @staticmethod
    def stream(corpus: Corpus) -> Tensor:
        """All of a corpus' audio in a row, within ±1."""
        import torch

        return torch.from_numpy(corpus.audio).float() / 32767


def teacher(state: State, count: int = UTTERANCES) -> None:
    """Generate teacher speech."""
    from training.demo_voice.corpus import make

    make(state.corpus, count, "grid")


def codec(state: State, until: int) -> None:
    """Train the wave decoder up to step ``until``."""
    from training.demo_voice.codec_training import CodecPlan, CodecTraining
    from training.demo_voice.wave_decoder import DecoderSizes

    _one_thread()
    audio = state.stream(Corpus.load(state.corpus, CODEC_SHARDS))
    CodecTraining(state.folder, audio, state.space(), CodecPlan(), DecoderSizes()).run(until)


def voice(state: State, until: int) -> None:
    """Train language models and flow up to step ``until``."""
    from training.demo_voice.design import config
    from training.demo_voice.voice_data import VoiceData
    from training.demo_voice.voice_training import VoicePlan, VoiceTraining
    from training.demo_voice.wave_decoder import DecoderSizes

    _one_thread()
    space, tokens = state.space(), state.tokens()
    data = VoiceData(state.corpus, space, tokens)
    held_out = VoiceData(state.corpus / "test", space, tokens)
    sizes = config(len(tokens.vocabulary()), DecoderSizes(latent=LATENT))
    VoiceTraining(state.folder, data, held_out, sizes, VoicePlan()).run(until)


def encoder(state: State, until: int) -> None:
    """Train the wave encoder up to step ``until``."""
    from training.demo_voice.encoder_training import EncoderPlan, EncoderTraining

    _one_thread()
    audio = state.stream(Corpus.load(state.corpus, CODEC_SHARDS))
    EncoderTraining(state.folder, audio, state.space(), EncoderPlan()).run(until)


def reconstruct(state: State, count: int) -> dict[str, float]:
    """Write held-out speech and its reconstructions under ``listening``."""
    from training.demo_voice.listening import reconstruct

    _one_thread()
    corpus = Corpus.load(state.corpus / "test")
    return reconstruct(state.folder, corpus, state.folder / "listening", count)


def checkpoint(state: State, out: Path | None, *, small: bool) -> dict[str, int]:
    """Write ``checkpoint`` in the state folder, or ``out``, from what is trained so far."""
    from training.demo_voice.checkpoint import write_checkpoint

    folder = out or state.folder / "checkpoint"
    return write_checkpoint(state.folder, state.tokens(), folder, small=small)


def samples(state: State, bundle: Path, out: Path) -> list[str]:
    """Write sample files of held-out sentences."""
    from training.demo_voice.samples import write_samples

    return write_samples(bundle, Corpus.load(state.corpus / "test"), out)


def hear(state: State) -> dict[str, float]:
    """Word error rates of what ``reconstruct`` wrote."""
    from training.demo_voice.listening import hear

    return hear(state.folder / "listening", held_out_texts())


def _one_thread() -> None:
    import torch

    # The products are small: a second thread costs more than it brings.
    torch.set_num_threads(1)
