"""Token ids equal those of the official wrapper around the checkpoint's own tokenizer."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import pytest
from parity_cases import DESIGN, PROMPT_TEXT, TEXT

transformers = pytest.importorskip("transformers")
pytest.importorskip("torch")
pytest.importorskip("librosa")
if importlib.util.find_spec("voxcpm") is None:
    pytest.skip("voxcpm is not installed", allow_module_level=True)

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")

TEXTS = [
    TEXT,
    PROMPT_TEXT + TEXT,
    DESIGN + TEXT,
    "Hello, world! It is 25 degrees; the rain's stopped.",
    "你好世界，今天天气很好。",
    "中国人说中国语音合成模型",
    "你好 你好, hello你好hello 你好",
    "我们 today 的 weather 很好 and 100% 合成!",
    "Ünïcödé naïve café, ça va?",
    "emoji \U0001f600 and \u200b zero width",
    "日本語 とカタカナ 한국어 العربية",
    "two  spaces   and three",
    "trailing space ",
    "a",
    "好",
    "(",
    "under_score ▁mark",
]


@pytest.mark.parametrize("text", TEXTS)
def test_ids_equal_the_official_ones(text: str, ours: Callable, officials: Callable) -> None:
    mine = ours("tiny").voice._model._model.prefixes._tokenizer.encode(text)
    assert mine == officials("tiny").model.text_tokenizer(text)


@pytest.mark.skipif(
    int(transformers.__version__.split(".")[0]) >= 5,
    reason="transformers 5 drops a leading space that tokenizer.json, and transformers 4, keep",
)
@pytest.mark.parametrize("text", [" leading space", "  two", " 你好", " "])
def test_leading_spaces_give_the_official_ids(
    text: str, ours: Callable, officials: Callable
) -> None:
    mine = ours("tiny").voice._model._model.prefixes._tokenizer.encode(text)
    assert mine == officials("tiny").model.text_tokenizer(text)
