"""Text to token ids, as the official VoxCPM wrapper does it, from tokenizer.json alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tokenizers

from edge_runtime.errors import BundleError, TextError

_WORD_MARK = "▁"


class Tokenizer:
    """A checkpoint's tokenizer with multi-character Chinese entries split into characters.

    The reference is ``voxcpm.model.utils.mask_multichar_chinese_tokens`` (version 2.0.3) around
    the tokenizer that tokenizer.json describes, as transformers 4.x loads it. transformers 5.x
    rebuilds a Llama tokenizer from its vocabulary instead and then treats the word mark in front
    of the text differently: it drops a leading space that tokenizer.json keeps.

    Unlike the official wrapper, names of control tokens in text ("<s>") are read as plain text.

    Reading is safe from several threads at once.
    """

    def __init__(
        self,
        base: tokenizers.Tokenizer,
        control_ids: frozenset[int],
        splits: dict[int, tuple[int, ...]],
    ) -> None:
        self._base = base
        self._control_ids = control_ids
        self._splits = splits

    @classmethod
    def load(cls, path: Path, control_ids: frozenset[int]) -> Tokenizer:
        """Read a tokenizer.json.

        Args:
            path: The file.
            control_ids: Ids that must never come from text, such as the start of audio.

        Raises:
            BundleError: The file is missing, torn or no tokenizer, or an entry must be split and
                it has neither the characters nor an unknown token.
        """
        description, data = _read(path)
        try:
            base = tokenizers.Tokenizer.from_str(data)
        except Exception as error:  # the library raises bare Exception
            raise BundleError(
                f"{path} does not describe a tokenizer: {error}.",
                remedy="Export the bundle again.",
            ) from error
        # A saved truncation or padding is for training; the official call turns both off.
        base.no_truncation()
        base.no_padding()
        base.encode_special_tokens = True
        # These keep the pieces of 10,000 words, and here a whole text is one word.
        if isinstance(base.model, (tokenizers.models.BPE, tokenizers.models.Unigram)):
            base.model._resize_cache(0)
        return cls(base, control_ids, _chinese_splits(base, _unknown_id(base, description), path))

    @property
    def vocab_size(self) -> int:
        """Number of entries, added tokens included."""
        return int(self._base.get_vocab_size(with_added_tokens=True))

    def encode(self, text: str) -> list[int]:
        """Token ids of ``text``, no special tokens added.

        Args:
            text: Normalised text; "" has no tokens or the word mark alone, as the file says.

        Raises:
            TextError: A piece of the text is itself a control token.
        """
        encoding = self._base.encode(text, add_special_tokens=False)
        ids: list[int] = []
        for index, token in enumerate(encoding.ids):
            if token in self._splits:
                ids.extend(self._splits[token])
            else:
                ids.append(token)
            if token in self._control_ids:
                start, end = encoding.offsets[index]
                raise TextError(
                    f"Text has {text[start:end] or encoding.tokens[index]!r} at position {start}, "
                    f"which is control token {token} of the model.",
                    remedy="Remove it or write it otherwise.",
                )
        return ids


def _read(path: Path) -> tuple[dict[str, Any], str]:
    try:
        data = path.read_text(encoding="utf-8")
        description = json.loads(data)
    except FileNotFoundError as error:
        raise BundleError(f"{path} is missing.", remedy="Export the bundle again.") from error
    except (OSError, ValueError, RecursionError) as error:
        raise BundleError(
            f"{path} is torn or not JSON: {error}.", remedy="Export the bundle again."
        ) from error
    if not isinstance(description, dict) or not isinstance(description.get("model"), dict):
        raise BundleError(
            f"{path} does not describe a tokenizer: it has no model.",
            remedy="Export the bundle again.",
        )
    return description, data


def _unknown_id(base: tokenizers.Tokenizer, description: dict[str, Any]) -> int | None:
    name = description["model"].get("unk_token") or "<unk>"
    found: int | None = base.token_to_id(name) if isinstance(name, str) else None
    return found


def _chinese_splits(
    base: tokenizers.Tokenizer, unknown: int | None, path: Path
) -> dict[int, tuple[int, ...]]:
    """Ids of multi-character Chinese entries, with or without word marks, to their characters'."""
    vocabulary: dict[str, int] = base.get_vocab(with_added_tokens=True)
    splits: dict[int, tuple[int, ...]] = {}
    for entry, number in vocabulary.items():
        bare = entry.replace(_WORD_MARK, "")
        if len(bare) < 2 or bare not in vocabulary or not _is_chinese(bare):
            continue
        characters = [vocabulary.get(character, unknown) for character in bare]
        known = tuple(number for number in characters if number is not None)
        if len(known) < len(characters):
            raise BundleError(
                f"{path} has the entry {entry!r} but not all of its characters, and no unknown "
                "token to stand for them.",
                remedy="Export the bundle again from a complete checkpoint.",
            )
        splits[number] = known
    return splits


def _is_chinese(text: str) -> bool:
    return all("\u4e00" <= character <= "\u9fff" for character in text)
