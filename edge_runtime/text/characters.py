"""What a character is to the voice: can it be spoken, and does it hang on to its neighbour."""

from __future__ import annotations

import unicodedata

ZERO_WIDTH_SPACE = "\u200b"
_ZERO_WIDTH_JOINER = "\u200d"
_VIRAMA_CLASS = 9

# Punctuation that has a name people read out.
_SPOKEN_PUNCTUATION = frozenset("%‰‱&@#§")
# Letters and symbols by category that have no ink: fillers and the blank Braille cell.
_BLANK = frozenset("\u115f\u1160\u3164\uffa0\u2800")
# Maths signs that text mostly uses as rules and separators.
_RULES = frozenset("~|")
_UNSPOKEN_CATEGORIES = frozenset(
    ("Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Zs", "Zl", "Zp", "Sk", "Mn", "Mc", "Me", "Cf", "Cc")
)
# Signs written before the letter that they belong to (Unicode class Prepend).
_PREPENDED = frozenset(
    "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\u0d4e\u1cf5\u1cf6\U000110bd"
    "\U000110cd\U000111c2\U000111c3\U0001193f\U00011941\U00011a3a\U00011a84\U00011a85\U00011a86\U00011a87"
    "\U00011a88\U00011a89\U00011d46\U00011f02"
)
# Format characters that end a cluster instead of extending it (Unicode class Control).
_DETACHED_FORMAT = frozenset("\u00ad\u061c\u180e\u200b\u200e\u200f\ufeff")


def is_spoken(character: str) -> bool:
    """Whether one character gives the voice something to say.

    Letters, digits, emoji and other symbols do, and so do unassigned and private characters
    (they may be newer than this Python's tables). Punctuation, space, marks and invisible
    characters do not, except signs with a name such as ``%`` and ``&``.
    """
    if character in _SPOKEN_PUNCTUATION:
        return True
    if character in _BLANK or character in _RULES:
        return False
    return unicodedata.category(character) not in _UNSPOKEN_CATEGORIES


def is_visible(character: str) -> bool:
    """Whether one character leaves ink: no space, format, control, filler or variation selector."""
    return character not in _BLANK and unicodedata.category(character) not in (
        "Zs",
        "Zl",
        "Zp",
        "Cf",
        "Cc",
        "Mn",
    )


def joins(previous: str, following: str) -> bool:
    """Whether two adjacent characters belong to one user-perceived character.

    Coarser than Unicode's extended grapheme clusters (UAX #29), never finer: every place where
    this says False is a cluster boundary there too. Flag pairs need context; see
    `cluster_ends`.
    """
    if previous < "\u0300" and following < "\u0300":
        return previous == "\r" and following == "\n"
    category = unicodedata.category(following)
    if category in ("Mn", "Mc", "Me"):
        return True
    if category == "Cf":
        return not _is_detached(following)
    if "\U0001f3fb" <= following <= "\U0001f3ff" or "\uff9e" <= following <= "\uff9f":
        return True
    if following in ("\u0e33", "\u0eb3"):
        return True
    if previous == _ZERO_WIDTH_JOINER or previous in _PREPENDED:
        return True
    if unicodedata.combining(previous) == _VIRAMA_CLASS and category[0] == "L":
        return True
    if _is_leading_jamo(following) or _is_syllable(following):
        return _is_leading_jamo(previous)
    return _is_jamo(following) and (_is_jamo(previous) or _is_syllable(previous))


def cluster_ends(text: str, start: int, end: int) -> list[int]:
    """Positions after each user-perceived character of ``text[start:end]``, the last one ``end``.

    ``start`` must itself be such a boundary. A pair of regional indicators (a flag) stays whole.
    """
    ends: list[int] = []
    in_flag = _is_regional(text[start]) if start < end else False
    for position in range(start + 1, end):
        previous, following = text[position - 1], text[position]
        regional = _is_regional(following)
        if joins(previous, following):
            continue
        if regional and in_flag and _is_regional(previous):
            in_flag = False
            continue
        ends.append(position)
        in_flag = regional
    if start < end:
        ends.append(end)
    return ends


def _is_regional(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _is_detached(character: str) -> bool:
    return (
        character in _DETACHED_FORMAT
        or "\u202a" <= character <= "\u202e"
        or "\u2060" <= character <= "\u206f"
        or "\ufff0" <= character <= "\ufffb"
    )


def _is_jamo(character: str) -> bool:
    return (
        "\u1100" <= character <= "\u11ff"
        or "\ua960" <= character <= "\ua97f"
        or "\ud7b0" <= character <= "\ud7ff"
    )


def _is_leading_jamo(character: str) -> bool:
    return "\u1100" <= character <= "\u115f" or "\ua960" <= character <= "\ua97f"


def _is_syllable(character: str) -> bool:
    return "\uac00" <= character <= "\ud7a3"
