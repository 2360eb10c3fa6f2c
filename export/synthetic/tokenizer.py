"""A tokenizer in MiniCPM-4's form: byte-fallback BPE with a word mark in front of the text."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MARK = "▁"
UNKNOWN, BEGIN, END = "<unk>", "<s>", "</s>"
# VoxCPM2 hard-codes these ids.
CONTROLS = {
    101: "<|audio_start|>",
    102: "<|audio_end|>",
    103: "<|ref_audio_start|>",
    104: "<|ref_audio_end|>",
}
_ASCII = [chr(code) for code in range(0x21, 0x7F)]
# Chinese punctuation fills the last ids in front of the control tokens.
_FIRST = [MARK, *_ASCII, "，", "。"]
_BYTES = [f"<0x{value:02X}>" for value in range(256)]
_CHINESE = "你好世界中国人语音合成模型今天气很我们是的一在不了有和大这主为上个到说时要"
# Each pair becomes one entry; official code splits Chinese entries of several characters again.
_MERGES = (
    ("你", "好"), ("世", "界"), ("中", "国"), ("中国", "人"), ("语", "音"), ("合", "成"),
    ("语音", "合成"), ("模", "型"), ("今", "天"), ("天", "气"), ("我", "们"),
    ("t", "h"), ("i", "n"), ("e", "r"), ("a", "n"), ("r", "e"), ("o", "n"), ("e", "n"),
    ("a", "t"), ("o", "u"), ("o", "r"), ("e", "s"), ("i", "s"), ("i", "t"), ("e", "d"),
    ("a", "r"), ("s", "t"), ("l", "l"), ("l", "o"), ("w", "or"), ("in", "g"), ("th", "e"),
    ("an", "d"), ("i", "on"), ("t", "o"), ("o", "f"), ("y", "ou"), ("h", "e"), ("a", "l"),
    ("wor", "l"), ("worl", "d"), ("he", "ll"), ("hell", "o"), ("H", "e"), ("He", "llo"),
    ("ll", "o"), (MARK, "the"), (MARK, "and"), (MARK, "to"), (MARK, "of"), (MARK, "in"),
    (MARK, "is"), (MARK, "it"), (MARK, "you"), (MARK, "a"), (MARK, "world"), (MARK, "Hello"),
    (MARK, "hello"), (MARK, MARK), (MARK, "你好"), (MARK, "t"), (MARK, "s"), (MARK, "w"),
)  # fmt: skip
_CJK = range(0x4E00, 0xA000)


@dataclass(frozen=True)
class SyntheticTokenizer:
    """Vocabulary of exactly ``size`` entries; what is left over becomes filler.

    Attributes:
        size: ``vocab_size`` of the config.
    """

    size: int

    def write(self, folder: Path) -> None:
        """Write ``tokenizer.json`` and ``tokenizer_config.json``."""
        # Written as data and not by the tokenizers library: its layout changes with versions.
        for name, document in (
            ("tokenizer.json", self.document()),
            ("tokenizer_config.json", self.settings()),
        ):
            text = json.dumps(document, ensure_ascii=False, indent=1)
            (folder / name).write_text(text + "\n", encoding="utf-8", newline="\n")

    def vocabulary(self) -> dict[str, int]:
        """Entries and ids, by id.

        Raises:
            ValueError: ``size`` has no room for the fixed entries.
        """
        entries = [UNKNOWN, BEGIN, END, *_FIRST]
        entries += [f"<|reserved_{index}|>" for index in range(len(entries), min(CONTROLS))]
        entries += [*CONTROLS.values(), *_BYTES, *_CHINESE]
        entries += [first + second for first, second in _MERGES]
        if len(set(entries)) != len(entries):
            raise ValueError("the fixed entries hold a name twice")
        if len(entries) > self.size:
            raise ValueError(f"vocab_size {self.size} is below the {len(entries)} fixed entries")
        room = self.size - len(entries)
        if room >= len(_CJK):
            known = set(entries)
            entries += [chr(code) for code in _CJK if chr(code) not in known]
            room = self.size - len(entries)
        entries += [f"<|filler_{index}|>" for index in range(room)]
        return {entry: index for index, entry in enumerate(entries)}

    def document(self) -> dict[str, Any]:
        """Content of ``tokenizer.json``."""
        return {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [
                _added(index, content, normalized=False) for index, content in self._special()
            ],
            "normalizer": {
                "type": "Sequence",
                "normalizers": [
                    {"type": "Prepend", "prepend": MARK},
                    {"type": "Replace", "pattern": {"String": " "}, "content": MARK},
                ],
            },
            "pre_tokenizer": None,
            "post_processor": _post_processor(),
            "decoder": {
                "type": "Sequence",
                "decoders": [
                    {"type": "Replace", "pattern": {"String": MARK}, "content": " "},
                    {"type": "ByteFallback"},
                    {"type": "Fuse"},
                    {"type": "Strip", "content": " ", "start": 1, "stop": 0},
                ],
            },
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": UNKNOWN,
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": True,
                "byte_fallback": True,
                "ignore_merges": False,
                "vocab": self.vocabulary(),
                "merges": [list(pair) for pair in _MERGES],
            },
        }

    def settings(self) -> dict[str, Any]:
        """Content of ``tokenizer_config.json``."""
        return {
            "add_bos_token": True,
            "add_eos_token": False,
            "added_tokens_decoder": {
                str(index): {
                    key: value
                    for key, value in _added(index, content, normalized=False).items()
                    if key != "id"
                }
                for index, content in self._special()
            },
            "additional_special_tokens": list(CONTROLS.values()),
            "bos_token": BEGIN,
            "clean_up_tokenization_spaces": False,
            "eos_token": END,
            "legacy": True,
            "model_max_length": 1000000000000000019884624838656,
            "pad_token": None,
            "sp_model_kwargs": {},
            "spaces_between_special_tokens": False,
            "tokenizer_class": "LlamaTokenizer",
            "unk_token": UNKNOWN,
            "use_default_system_prompt": False,
        }

    def _special(self) -> list[tuple[int, str]]:
        return [(0, UNKNOWN), (1, BEGIN), (2, END), *CONTROLS.items()]


def _added(index: int, content: str, *, normalized: bool) -> dict[str, Any]:
    return {
        "id": index,
        "content": content,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": normalized,
        "special": True,
    }


def _post_processor() -> dict[str, Any]:
    def begin(type_id: int) -> dict[str, Any]:
        return {"SpecialToken": {"id": BEGIN, "type_id": type_id}}

    def text(name: str, type_id: int) -> dict[str, Any]:
        return {"Sequence": {"id": name, "type_id": type_id}}

    return {
        "type": "TemplateProcessing",
        "single": [begin(0), text("A", 0)],
        "pair": [begin(0), text("A", 0), begin(1), text("B", 1)],
        "special_tokens": {BEGIN: {"id": BEGIN, "ids": [1], "tokens": [BEGIN]}},
    }
