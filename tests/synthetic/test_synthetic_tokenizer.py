"""The tokenizer of synthetic checkpoints behaves like the published one's family."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from export.synthetic.tokenizer import CONTROLS, SyntheticTokenizer


def _load(folder: Path) -> Tokenizer:
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


@pytest.fixture(scope="module")
def tokenizer(tiny_folder: Path) -> Tokenizer:
    return _load(tiny_folder)


def test_size_equals_vocab_size(tokenizer: Tokenizer) -> None:
    assert tokenizer.get_vocab_size() == 640


def test_published_size_holds_every_chinese_character(tmp_path: Path) -> None:
    SyntheticTokenizer(73448).write(tmp_path)
    large = _load(tmp_path)
    assert large.get_vocab_size() == 73448
    assert large.encode("龘", add_special_tokens=False).tokens == ["▁", "龘"]


def test_control_tokens_have_their_fixed_ids(tokenizer: Tokenizer) -> None:
    assert {index: tokenizer.id_to_token(index) for index in CONTROLS} == CONTROLS
    assert [tokenizer.id_to_token(index) for index in range(3)] == ["<unk>", "<s>", "</s>"]
    encoded = tokenizer.encode("a<|audio_start|>", add_special_tokens=False)
    assert encoded.ids[-1] == 101


def test_words_and_chinese_entries_are_merged(tokenizer: Tokenizer) -> None:
    encoded = tokenizer.encode("Hello world中国人", add_special_tokens=False)
    assert encoded.tokens == ["▁Hello", "▁world", "中国人"]


def test_begin_token_comes_first(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("a").ids[0] == 1


def test_unknown_characters_become_bytes(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("é", add_special_tokens=False).tokens == ["▁", "<0xC3>", "<0xA9>"]


@settings(max_examples=60, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<▁")))
def test_decoding_gives_the_text_back(text: str, tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert 0 not in ids
    assert tokenizer.decode(ids) == text


def test_vocabulary_too_small_is_refused() -> None:
    with pytest.raises(ValueError, match="vocab_size 300"):
        SyntheticTokenizer(300).vocabulary()


def test_transformers_agrees(tiny_folder: Path, tokenizer: Tokenizer) -> None:
    transformers = pytest.importorskip("transformers")
    official = transformers.LlamaTokenizerFast.from_pretrained(str(tiny_folder))
    assert len(official) == 640
    assert official("hi").input_ids[0] == official.bos_token_id == 1
    for text in (
        "Hello world",
        "two  spaces",
        "你好世界, 今天天气很好",
        "é ñ 🎉",
        "a\tb\n",
        "x" * 50,
    ):
        tokens = official.tokenize(text)
        expected = tokenizer.encode(text, add_special_tokens=False)
        assert tokens == expected.tokens
        assert official.convert_tokens_to_ids(tokens) == expected.ids
