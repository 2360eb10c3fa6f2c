"""Words as a recogniser may write them differently, made alike; word errors.

Numbers become digits ("forty two" and "42" are 4 2), ordinals the same number, currency and percent
signs and "and" go, abbreviations and British spellings are resolved. Compounds count as equal
however they are cut ("check in", "check-in").
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen"
).split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_ORDINALS = (
    "zeroth first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth "
    "thirteenth fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth"
).split()
_VALUES = {
    **{word: value for value, word in enumerate(_ONES)},
    **{word: value for value, word in enumerate(_ORDINALS)},
    **{word: 20 + 10 * index for index, word in enumerate(_TENS)},
    **{word[:-1] + "ieth": 20 + 10 * index for index, word in enumerate(_TENS)},
    "oh": 0, "o": 0,
}  # fmt: skip
_SCALES = {"hundred": 100, "hundredth": 100, "thousand": 1000, "thousandth": 1000}
_SAME = {
    "mr": "mister", "dr": "doctor", "km": "kilometers", "kph": "kilometers per hour",
    "km/h": "kilometers per hour", "ok": "okay", "theatre": "theater", "colour": "color",
    "canceled": "cancelled", "meter": "meter", "metres": "meters", "im": "i am", "its": "it is",
    "apologise": "apologize", "goodbye": "good bye", "m": "meters", "ft": "feet",
}  # fmt: skip
_SILENT = frozenset("and dollar dollars cent cents percent".split())
_LONGEST_COMPOUND = 6


def normalized_words(text: str) -> list[str]:
    """Comparable words of English text."""
    text = text.lower().replace("’", "'")
    text = re.sub(r"(\d),(?=\d{3}\b)", r"\1", text)
    text = re.sub(r"(\d):00\b", r"\1 o'clock", text)
    text = re.sub(r"(\d+)(?:st|nd|rd|th)\b", r"\1", text)
    text = re.sub(r"(\d)([a-z])|([a-z])(\d)", r"\1\3 \2\4", text)
    text = re.sub(r"i'm\b", "i am", text).replace("it's", "it is")
    text = re.sub(r"[^a-z0-9'/ ]+", " ", text)
    words = [word.strip("'") for word in text.split()]
    words = [part for word in words for part in _SAME.get(word, word).split()]
    return [word for word in _with_digits(words) if word and word not in _SILENT]


def word_errors(reference: Sequence[str], heard: Sequence[str]) -> int:
    """Fewest substitutions, insertions and deletions; compounds may be cut anywhere."""
    rows, columns = len(reference) + 1, len(heard) + 1
    cost = [[max(i, j) if not i or not j else 0 for j in range(columns)] for i in range(rows)]
    for i in range(1, rows):
        for j in range(1, columns):
            best = min(
                cost[i - 1][j] + 1,
                cost[i][j - 1] + 1,
                cost[i - 1][j - 1] + (reference[i - 1] != heard[j - 1]),
            )
            for k in range(1, min(i, _LONGEST_COMPOUND) + 1):
                joined = "".join(reference[i - k : i])
                for m in range(1, min(j, _LONGEST_COMPOUND) + 1):
                    if (k > 1 or m > 1) and joined == "".join(heard[j - m : j]):
                        best = min(best, cost[i - k][j - m])
            cost[i][j] = best
    return cost[-1][-1]


def _with_digits(words: list[str]) -> list[str]:
    """Number words to single digits."""
    result: list[str] = []
    index = 0
    while index < len(words):
        if words[index].isdigit():
            result.extend(words[index])
            index += 1
            continue
        value, used = _number(words[index:])
        if used:
            result.extend(str(value))
            index += used
        else:
            result.append(words[index])
            index += 1
    return result


def _number(words: list[str]) -> tuple[int, int]:
    """Value of the longest cardinal or ordinal that ``words`` begin with, and its length."""
    total, current, used, last = 0, 0, 0, 10**6
    for at, word in enumerate(words):
        if word in _VALUES:
            value = _VALUES[word]
            # "twenty five" is one number, "five twenty" and "twenty fifteen" are two.
            fits = at == 0 or (last >= 100 and value) or (last in range(20, 100) and 0 < value < 10)
            if not fits:
                break
            current += value
            last = value
        elif word in _SCALES and current and last < 100:
            scale = _SCALES[word]
            if scale == 1000:
                total, current = total + current * 1000, 0
            else:
                current *= 100
            last = scale
        elif word == "and" and last in (100, 1000) and words[at + 1 : at + 2]:
            if words[at + 1] not in _VALUES:
                break
            continue
        else:
            break
        used = at + 1
    return total + current, used
