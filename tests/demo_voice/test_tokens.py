"""The demo voice's own tokenizer."""

from __future__ import annotations

from pathlib import Path

from edge_runtime.tokenizer import Tokenizer
from training.demo_voice.texts import TextGenerator
from training.demo_voice.tokens import AUDIO_START, VoiceTokens

CONTROLS = frozenset({101, 102, 103, 104})


def test_runtime_reads_the_written_file_as_training_does(tmp_path: Path) -> None:
    texts = TextGenerator(7).take(400)
    tokens = VoiceTokens.learn(texts[:200], 300)
    tokens.write(tmp_path)
    tokenizer = Tokenizer.load(tmp_path / "tokenizer.json", CONTROLS)
    for text in texts[150:]:
        assert tokenizer.encode(text) == [token for word in tokens.encode(text) for token in word]


def test_control_ids_are_the_official_ones() -> None:
    vocabulary = VoiceTokens(()).vocabulary()
    assert vocabulary["<|audio_start|>"] == AUDIO_START
    assert vocabulary["<|ref_audio_end|>"] == 104
    assert sorted(vocabulary.values()) == list(range(len(vocabulary)))


def test_frequent_words_become_one_token() -> None:
    tokens = VoiceTokens.learn(["Please wait. Please wait here."] * 3, 100)
    assert [len(word) for word in tokens.encode("Please wait here.")] == [1, 1, 1]
