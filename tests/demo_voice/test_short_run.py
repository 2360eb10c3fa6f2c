"""The whole recipe on a minute of tones: every stage runs, resumes, and its result is exported."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install '.[train]'")
pytest.importorskip("safetensors.torch")
from edge_runtime.voice import Voice  # noqa: E402
from export.voxcpm2.exporter import export_voxcpm2  # noqa: E402
from training.demo_voice.checkpoint import write_checkpoint  # noqa: E402
from training.demo_voice.codec_training import CodecPlan, CodecTraining  # noqa: E402
from training.demo_voice.corpus import Corpus  # noqa: E402
from training.demo_voice.design import config  # noqa: E402
from training.demo_voice.encoder_training import EncoderPlan, EncoderTraining  # noqa: E402
from training.demo_voice.latent_space import LatentSpace  # noqa: E402
from training.demo_voice.stages import State  # noqa: E402
from training.demo_voice.teacher import FRAME, PATCH  # noqa: E402
from training.demo_voice.texts import TextGenerator  # noqa: E402
from training.demo_voice.tokens import REFERENCE_END, REFERENCE_START, VoiceTokens  # noqa: E402
from training.demo_voice.voice_data import Said, VoiceData  # noqa: E402
from training.demo_voice.voice_training import VoicePlan, VoiceTraining  # noqa: E402
from training.demo_voice.wave_decoder import DecoderSizes  # noqa: E402

SIZES = DecoderSizes(latent=32, width=32)
CODEC = CodecPlan(batch=2, frames=8)
VOICE = VoicePlan(batch=3, bfloat16=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state folder with one shard of tones, one tone per word."""
    folder = tmp_path_factory.mktemp("state")
    (folder / "corpus").mkdir()
    texts = TextGenerator(1).take(12)
    audio, lengths, words = [], [], []
    for text in texts:
        count = len(text.split())
        frames = -(-4 * count // 4) * 4
        said = np.minimum(np.arange(frames) // 4, count - 1)
        pitch = np.repeat(200 + 37 * said, FRAME) * np.arange(frames * FRAME) / 16000
        audio.append(8000 * np.sin(2 * np.pi * pitch))
        lengths.append(frames * FRAME)
        words.append(said)
    np.savez(
        folder / "corpus" / "shard_0000.npz",
        texts=np.asarray(json.dumps(texts)),
        lengths=np.asarray(lengths),
        audio=np.concatenate(audio).astype(np.int16),
        phonemes=np.concatenate(words).astype(np.int16),
        words=np.concatenate(words).astype(np.int16),
    )
    state = State(folder)
    space = LatentSpace.fit(state.stream(Corpus.load(state.corpus)), 32)
    space.save(folder / "space.npz")
    return folder


def train_codec(folder: Path, out: Path, until: int) -> CodecTraining:
    state = State(folder)
    audio = state.stream(Corpus.load(state.corpus))
    training = CodecTraining(out, audio, state.space(), CODEC, SIZES)
    training.run(until, every=1)
    return training


def train_voice(folder: Path, out: Path, until: int) -> VoiceTraining:
    state = State(folder)
    tokens = make_tokens()
    data = VoiceData(state.corpus, state.space(), tokens)
    sizes = config(len(tokens.vocabulary()), SIZES)
    training = VoiceTraining(out, data, data, sizes, VOICE)
    training.run(until, every=1, save_every=2)
    return training


def make_tokens() -> VoiceTokens:
    return VoiceTokens.learn(TextGenerator(1).take(12), 40)


def test_resumed_codec_training_is_the_uninterrupted_one(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "once").mkdir()
    (tmp_path / "twice").mkdir()
    once = train_codec(folder, tmp_path / "once", 3)
    train_codec(folder, tmp_path / "twice", 1)
    twice = train_codec(folder, tmp_path / "twice", 3)
    for name, value in once.model.state_dict().items():
        assert torch.equal(value, twice.model.state_dict()[name]), name
    for name, value in once.average.state_dict().items():
        assert torch.equal(value, twice.average.state_dict()[name]), name


def test_resumed_voice_training_is_the_uninterrupted_one(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "once").mkdir()
    (tmp_path / "twice").mkdir()
    once = train_voice(folder, tmp_path / "once", 2)
    train_voice(folder, tmp_path / "twice", 1)
    twice = train_voice(folder, tmp_path / "twice", 2)
    for name, value in once.model.state_dict().items():
        assert torch.equal(value, twice.model.state_dict()[name]), name
    figures = json.loads((tmp_path / "once" / "voice.jsonl").read_text().splitlines()[-1])
    assert {"held_flow", "held_wrong_flow"} <= set(figures)


def test_trained_parts_become_a_bundle_that_speaks(folder: Path, tmp_path: Path) -> None:
    train_codec(folder, tmp_path, 1)
    train_voice(folder, tmp_path, 1)
    state = State(folder)
    audio = state.stream(Corpus.load(state.corpus))
    encoder = EncoderTraining(tmp_path, audio, state.space(), EncoderPlan(batch=2, frames=6))
    encoder.run(1)
    steps = write_checkpoint(tmp_path, make_tokens(), tmp_path / "checkpoint")
    assert steps == {"codec": 1, "voice": 1, "encoder": 1}
    export_voxcpm2(tmp_path / "checkpoint", tmp_path / "bundle", weights="f32")
    voice = Voice.load(tmp_path / "bundle", threads=1, prepare="never")
    speech = voice.say("Turn left.", seed=1, max_len=3)
    assert speech.sample_rate == 16000
    assert len(speech.audio) % PATCH == 0
    assert np.isfinite(speech.audio).all()


def test_reference_is_heard_but_not_spoken_and_two_sentences_stop_once(folder: Path) -> None:
    state, tokens = State(folder), make_tokens()
    data = VoiceData(state.corpus, state.space(), tokens)
    single, pair, led = (
        data.gather([said]) for said in (Said((2,)), Said((2, 3)), Said((2,), reference=4))
    )
    assert len(pair.before) == len(data.patches[2]) + len(data.patches[3])
    assert pair.stop.tolist() == [0] * (len(pair.before) - 1) + [1]
    lead = len(led.patches) - len(led.before)
    assert lead == min(12, len(data.patches[4]))
    assert led.scored.tolist() == [False] * lead + [True] * len(single.before)
    assert led.tokens[0, 0] == REFERENCE_START
    assert led.tokens[0, lead + 1] == REFERENCE_END
    assert torch.equal(led.tokens[0, lead + 2 :], single.tokens[0])
    assert torch.equal(led.spoken[:, lead + 2 :], single.spoken)
    assert torch.equal(led.before, single.before)
    # The second sentence's words are found behind the first one's.
    first = sum(map(len, data.tokens[2]))
    second = pair.spoken[len(data.patches[2]) :]
    assert second.any(1).all()
    assert not second[:, :first].any()
