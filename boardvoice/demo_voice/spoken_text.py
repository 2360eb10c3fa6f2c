"""Writes text as the demo voice knows it: numbers as words, and which words it never heard."""

from __future__ import annotations

import re
from importlib.resources import files

from boardvoice.demo_voice import spoken_numbers as say

_PRICE = re.compile(r"\$(\d{1,4})(?:\.(\d\d))?(?![\d.,]*\d)")
_CLOCK = re.compile(r"\b(1[0-2]|0?[1-9]):([0-5]\d)\b")
_ORDINAL = re.compile(r"\b(\d{1,4})(?:st|nd|rd|th)\b", re.IGNORECASE)
_PERCENT = re.compile(r"(?<=\d)\s*%")
_JOINED = re.compile(r"(?<=[A-Za-z])(?=\d)|(?<=\d)(?=[A-Za-z])")
_THOUSANDS = re.compile(r"\b(\d),(\d{3})\b(?!,\d)")
_POINT = re.compile(r"(?<=\d)\.(?=\d)")
_NUMBER = re.compile(r"\d+")
_WORD = re.compile(r"[A-Za-z']+")


def spoken_text(text: str) -> str:
    """The text without digits.

    Numbers to 9,999 become cardinals, longer ones and those with a leading zero are said digit by
    digit; ``$5.25``, ``9:05``, ``7th``, ``80%`` and ``B12`` are written out.
    """
    text = _PRICE.sub(_price, text)
    text = _CLOCK.sub(lambda match: say.clock(int(match[1]), int(match[2])), text)
    text = _THOUSANDS.sub(r"\1\2", text)
    text = _ORDINAL.sub(lambda match: say.ordinal(int(match[1])), text)
    text = _PERCENT.sub(" percent", text)
    text = _JOINED.sub(" ", text)
    text = _POINT.sub(" point ", text)
    return _NUMBER.sub(_number, text)


def unheard_words(text: str) -> list[str]:
    """Words of the text that were not in the demo voice's training, each once, in order."""
    heard = set((files("boardvoice") / "demo_voice" / "words.txt").read_text("utf-8").split())
    words = dict.fromkeys(word for word in _WORD.findall(text) if len(word) > 1)
    return [word for word in words if word.lower() not in heard]


def _price(match: re.Match[str]) -> str:
    dollars, cents = int(match[1]), int(match[2] or 0)
    return say.price(dollars, cents) if dollars or cents else "zero dollars"


def _number(match: re.Match[str]) -> str:
    digits = match[0]
    if (len(digits) > 1 and digits[0] == "0") or int(digits) > say.LARGEST:
        return say.digits(digits)
    return say.cardinal(int(digits))
