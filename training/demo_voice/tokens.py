"""A byte-fallback BPE in MiniCPM's form, learnt from the demo voice's own sentences."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from export.synthetic.tokenizer import BEGIN, CONTROLS, END, MARK, UNKNOWN

AUDIO_START, REFERENCE_START, REFERENCE_END = 101, 103, 104
_CHARACTERS = [MARK, *(chr(code) for code in range(0x21, 0x7F))]
_BYTES = [f"<0x{value:02X}>" for value in range(256)]


@dataclass(frozen=True)
class VoiceTokens:
    """Merges in the order they were learnt.

    Attributes:
        merges: Pairs of pieces.
    """

    merges: tuple[tuple[str, str], ...]

    @classmethod
    def learn(cls, texts: Iterable[str], count: int) -> VoiceTokens:
        """Learn up to ``count`` merges within words; ties go to the smaller pair."""
        words = Counter(word for text in texts for word in text.split())
        pieces = {word: [MARK, *word] for word in words}
        merges: list[tuple[str, str]] = []
        while len(merges) < count:
            pairs: Counter[tuple[str, str]] = Counter()
            for word, parts in pieces.items():
                for pair in itertools.pairwise(parts):
                    pairs[pair] += words[word]
            if not pairs:
                break
            best = min(pairs, key=lambda pair: (-pairs[pair], pair))
            if pairs[best] < 2:
                break
            merges.append(best)
            for parts in pieces.values():
                _merge(parts, best)
        return cls(tuple(merges))

    def vocabulary(self) -> dict[str, int]:
        """Entries and ids."""
        entries = [UNKNOWN, BEGIN, END, *_CHARACTERS]
        entries += [f"<|reserved_{index}|>" for index in range(len(entries), min(CONTROLS))]
        entries += [*CONTROLS.values(), *_BYTES]
        entries += [first + second for first, second in self.merges]
        return {entry: index for index, entry in enumerate(dict.fromkeys(entries))}

    def encode(self, text: str) -> list[list[int]]:
        """Ids of each word of printable ASCII text, as ``tokenizer.json`` gives them in a row."""
        vocabulary = self.vocabulary()
        rank = {pair: index for index, pair in enumerate(self.merges)}
        words = []
        for word in text.split():
            parts = [MARK, *word]
            while len(parts) > 1:
                pairs = itertools.pairwise(parts)
                best = min(pairs, key=lambda pair: rank.get(pair, len(rank)))
                if best not in rank:
                    break
                _merge(parts, best)
            words.append([vocabulary[part] for part in parts])
        return words

    def write(self, folder: Path) -> None:
        """Write ``tokenizer.json`` and ``tokenizer_config.json``."""
        for name, document in (
            ("tokenizer.json", self.document()),
            ("tokenizer_config.json", self.settings()),
        ):
            text = json.dumps(document, ensure_ascii=False, indent=1)
            (folder / name).write_text(text + "\n", encoding="utf-8", newline="\n")

    def document(self) -> dict[str, Any]:
        """Content of ``tokenizer.json``."""
        special = [(0, UNKNOWN), (1, BEGIN), (2, END), *CONTROLS.items()]
        flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
        begin = {"SpecialToken": {"id": BEGIN, "type_id": 0}}
        text = {"Sequence": {"id": "A", "type_id": 0}}
        return {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [
                {"id": index, "content": content, **flags, "special": True}
                for index, content in special
            ],
            "normalizer": {
                "type": "Sequence",
                "normalizers": [
                    {"type": "Prepend", "prepend": MARK},
                    {"type": "Replace", "pattern": {"String": " "}, "content": MARK},
                ],
            },
            "pre_tokenizer": None,
            "post_processor": {
                "type": "TemplateProcessing",
                "single": [begin, text],
                "pair": [begin, text, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {BEGIN: {"id": BEGIN, "ids": [1], "tokens": [BEGIN]}},
            },
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
                "merges": [list(pair) for pair in self.merges],
            },
        }

    @staticmethod
    def settings() -> dict[str, Any]:
        """Content of ``tokenizer_config.json``."""
        return {
            "add_bos_token": True,
            "add_eos_token": False,
            "bos_token": BEGIN,
            "eos_token": END,
            "unk_token": UNKNOWN,
            "legacy": True,
            "tokenizer_class": "LlamaTokenizer",
        }


def _merge(parts: list[str], pair: tuple[str, str]) -> None:
    index = 0
    while index < len(parts) - 1:
        if (parts[index], parts[index + 1]) == pair:
            parts[index : index + 2] = [pair[0] + pair[1]]
        index += 1
