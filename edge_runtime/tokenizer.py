"""Text to token ids, as the official VoxCPM wrapper does it, from tokenizer.json alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import tokenizers

from device_profiles.plain_file import read_plain_file
from edge_runtime.errors import BundleError, TextError

_WORD_MARK = "▁"
_MEMORY_FACTOR = 14
# Beyond any vocabulary: ends the search where two ids have the same entry.
_MOST_IDS = 1 << 22


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
        base = _read(path)
        # A saved truncation or padding is for training; the official call turns both off.
        base.no_truncation()
        base.no_padding()
        base.encode_special_tokens = True
        # These keep the pieces of 10,000 words, and here a whole text is one word.
        if isinstance(base.model, (tokenizers.models.BPE, tokenizers.models.Unigram)):
            base.model._resize_cache(0)
        return cls(base, control_ids, _chinese_splits(base, _unknown_id(base), path))

    @staticmethod
    def memory_bytes(file_bytes: int) -> int:
        """Anonymous memory that loading a tokenizer.json of this size takes, at its peak.

        Measured with 73,448 entries: 11 bytes per byte of the file, of which 9 stay.
        """
        return _MEMORY_FACTOR * file_bytes

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


def _read(path: Path) -> tokenizers.Tokenizer:
    try:
        data = read_plain_file(path)
    except FileNotFoundError as error:
        raise BundleError(f"{path} is missing.", remedy="Export the bundle again.") from error
    except OSError as error:
        raise BundleError(
            f"{path} cannot be read: {error}.", remedy="Export the bundle again."
        ) from error
    try:
        return tokenizers.Tokenizer.from_buffer(data)
    except Exception as error:  # the library raises bare Exception
        raise _wrong_file(path, data, error) from error


def _wrong_file(path: Path, data: bytes, error: Exception) -> BundleError:
    """What is wrong with a file that the library does not take. Parsed here only then: the parsed
    form of a large vocabulary would be the largest block of a small device."""
    try:
        description = json.loads(data)
    except (ValueError, RecursionError) as cause:
        reason = f"is torn or not JSON: {cause}"
    else:
        reason = f"does not describe a tokenizer: {error}"
        if not isinstance(description, dict) or not isinstance(description.get("model"), dict):
            reason = "does not describe a tokenizer: it has no model"
    return BundleError(f"{path} {reason}.", remedy="Export the bundle again.")


def _unknown_id(base: tokenizers.Tokenizer) -> int | None:
    # Not every kind of model has one.
    found: int | None = base.token_to_id(getattr(base.model, "unk_token", None) or "<unk>")
    return found


def _chinese_splits(
    base: tokenizers.Tokenizer, unknown: int | None, path: Path
) -> dict[int, tuple[int, ...]]:
    """Ids of multi-character Chinese entries, with or without word marks, to their characters'."""
    splits: dict[int, tuple[int, ...]] = {}
    # Entry by entry: the whole vocabulary as a dictionary takes 10 MB at full size.
    for number, entry in _entries(base):
        bare = entry.replace(_WORD_MARK, "")
        if len(bare) < 2 or not _is_chinese(bare) or base.token_to_id(bare) is None:
            continue
        characters = [_known(base.token_to_id(character), unknown) for character in bare]
        known = tuple(number for number in characters if number is not None)
        if len(known) < len(characters):
            raise BundleError(
                f"{path} has the entry {entry!r} but not all of its characters, and no unknown "
                "token to stand for them.",
                remedy="Export the bundle again from a complete checkpoint.",
            )
        splits[number] = known
    return splits


def _entries(base: tokenizers.Tokenizer) -> Iterator[tuple[int, str]]:
    """Ids may have gaps."""
    left, number = base.get_vocab_size(with_added_tokens=True), 0
    while left > 0 and number < _MOST_IDS:
        entry = base.id_to_token(number)
        if entry is not None:
            yield number, entry
            left -= 1
        number += 1


def _known(number: int | None, unknown: int | None) -> int | None:
    return unknown if number is None else number


def _is_chinese(text: str) -> bool:
    return all("\u4e00" <= character <= "\u9fff" for character in text)
