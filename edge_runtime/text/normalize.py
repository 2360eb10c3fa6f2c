"""The door for text: read it, clean it or refuse it, and tell a voice design from the words."""

from __future__ import annotations

import codecs
import re
import sys
from pathlib import Path
from typing import BinaryIO

from edge_runtime.errors import TextError
from edge_runtime.text.characters import is_spoken, is_visible

MAX_CHARS = 1_000_000

_BOM = "\ufeff"
_WHITESPACE = re.compile(r"\s+")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
# U+001C..U+001F and U+0085 are whitespace to Python's \s, hence to the official package.
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f]")
_OPENING = "(（"
_CLOSING = ")）"


def normalize_text(text: str, *, max_chars: int = MAX_CHARS) -> str:
    """Clean text for the model, or say why it cannot be spoken.

    Every whitespace run becomes one space, as in the official package. Beyond it, a leading
    byte order mark and whitespace at both ends are dropped. Nothing else is changed: no Unicode
    normal form, no expansion of numbers.

    Args:
        text: What to say.
        max_chars: Longest text taken, in characters.

    Returns:
        The cleaned text; cleaning it again changes nothing.

    Raises:
        TextError: Not a string, too long, empty or invisible, nothing to pronounce, a lone
            surrogate or a control character (with its position in ``text``, from 0).

    Source: ``voxcpm.core.VoxCPM._generate``, version 2.0.3.
    """
    if not isinstance(text, str):
        raise TextError(f"Text must be a string, not {type(text).__name__}.")
    if len(text) > max_chars:
        raise TextError(
            f"Text has {len(text)} characters; the limit is {max_chars}.",
            remedy="Split it and synthesise the parts one by one.",
        )
    if found := _SURROGATE.search(text):
        raise TextError(
            f"Text has a lone surrogate {_code_point(found.group())} at position {found.start()}.",
            remedy="Decode the text again from its source; a part of a character is missing.",
        )
    if found := _CONTROL.search(text):
        raise TextError(
            f"Text has a control character {_code_point(found.group())} "
            f"at position {found.start()}.",
            remedy="Remove it; is this a text file?",
        )
    cleaned = _WHITESPACE.sub(" ", text).lstrip(" " + _BOM).rstrip()
    if not any(map(is_visible, cleaned)):
        what = "only invisible characters" if cleaned else "nothing to say"
        raise TextError(f"Text is empty: {what}.")
    if not any(map(is_spoken, cleaned)):
        raise TextError(
            f"Text has nothing to pronounce, only punctuation: {_excerpt(cleaned)!r}.",
            remedy="Give it at least one word, number or symbol.",
        )
    return cleaned


def read_text_file(
    path: str | Path, *, max_bytes: int = 4 * MAX_CHARS + 4, stdin: BinaryIO | None = None
) -> str:
    """Read a whole text file, or standard input for ``"-"``.

    UTF-8 strictly, with or without a byte order mark; UTF-16 only with one.

    Args:
        path: File to read, or ``"-"``.
        max_bytes: Largest file taken, in bytes; no more than this is ever held.
        stdin: Binary stream to read for ``"-"``; the process's own when None.

    Returns:
        The text as it stands, without the byte order mark; not yet normalised.

    Raises:
        TextError: Missing, unreadable or too large, or not in those encodings (with the offset
            of the first bad byte).
    """
    name = "standard input" if str(path) == "-" else str(path)
    try:
        if str(path) == "-":
            stream = stdin if stdin is not None else _standard_input()
            data = stream.read(max_bytes + 1)
        else:
            with open(path, "rb") as file:
                data = file.read(max_bytes + 1)
    except FileNotFoundError as error:
        raise TextError(f"There is no text file {name}.") from error
    except (OSError, ValueError) as error:
        raise TextError(f"Text cannot be read from {name}: {error}.") from error
    if len(data) > max_bytes:
        raise TextError(f"{name} is larger than the limit of {max_bytes} bytes.")
    return _decode(data, name)


def split_design(text: str) -> tuple[str, str]:
    """Split a voice design, an instruction in parentheses before the words, from the words.

    The model gets both verbatim; a long text repeats the design before every piece. Half-width
    and full-width parentheses may be mixed and nested. What is in them must have two letters or
    more, so that a list number such as "(1)" is not repeated.

    Args:
        text: Normalised text.

    Returns:
        ``(design, words)`` with ``design + words == text``. The space after the closing
        parenthesis belongs to the design. With no design, no closing parenthesis or no words
        after it, ``("", text)``.
    """
    if not text or text[0] not in _OPENING:
        return "", text
    closing = _matching(text)
    if closing < 0:
        return "", text
    words = text[closing + 1 :].lstrip()
    design = text[: len(text) - len(words)]
    if sum(map(str.isalpha, design)) < 2 or not any(map(is_spoken, words)):
        return "", text
    return design, words


def _matching(text: str) -> int:
    """Position of the parenthesis that closes the first one, or -1."""
    depth = 0
    for position, character in enumerate(text):
        depth += (character in _OPENING) - (character in _CLOSING)
        if depth == 0:
            return position
    return -1


def _standard_input() -> BinaryIO:
    if sys.stdin is None:
        raise TextError("Standard input is closed.")
    return sys.stdin.buffer


def _decode(data: bytes, name: str) -> str:
    bom = b""
    encoding = "utf-8"
    if data.startswith(codecs.BOM_UTF8):
        bom = codecs.BOM_UTF8
    elif data.startswith(codecs.BOM_UTF16_LE):
        bom, encoding = codecs.BOM_UTF16_LE, "utf-16-le"
    elif data.startswith(codecs.BOM_UTF16_BE):
        bom, encoding = codecs.BOM_UTF16_BE, "utf-16-be"
    try:
        return data[len(bom) :].decode(encoding)
    except UnicodeDecodeError as error:
        raise TextError(
            f"{name} is not valid {encoding.upper()} at byte {len(bom) + error.start}: "
            f"{error.reason}.",
            remedy="Save it as UTF-8.",
        ) from error


def _code_point(character: str) -> str:
    return f"U+{ord(character):04X}"


def _excerpt(text: str, length: int = 40) -> str:
    return text if len(text) <= length else text[:length] + "…"
