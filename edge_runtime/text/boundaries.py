"""Where a text may be cut: after sentences, after clauses, after words."""

from __future__ import annotations

import re
from dataclasses import dataclass

from edge_runtime.text.characters import ZERO_WIDTH_SPACE, is_spoken, joins

# Ends of sentences that need no space after them: CJK, Arabic, Urdu, Indic, Armenian, Ethiopic,
# Khmer, Burmese, Tibetan, Thai.
_STRONG = "。！？；｡．؟۔।॥։።፧។៕။།๚๛‼⁇⁈⁉"
_ASCII_ENDS = ".!?…"
_CLAUSE_STRONG = "，、：،؛၊፣፤፥—―･"
_CLAUSE_ASCII = ",;:"
_CLOSERS = "\"'”’»›)]}）］｝】」』〉》〕〗〙〛｣＂＇"
# The same, less those that some language also opens with: safe to take across a space.
_LOOSE_CLOSERS = "»”›)]}"
_BRACKETS = ")]}）］｝】」』〉》〕〗〙〛｣"

_CANDIDATE = re.compile(
    rf"(?P<end>[{re.escape(_ASCII_ENDS + _STRONG)}]+)[{re.escape(_CLOSERS)}]*"
    rf"(?:\s[{re.escape(_LOOSE_CLOSERS)}](?=\s|$))?"
    rf"|(?P<clause>[{re.escape(_CLAUSE_ASCII + _CLAUSE_STRONG)}]+)[{re.escape(_CLOSERS)}]*"
    r"|(?P<dash>(?<=\s)[-–]+(?=\s))"
    rf"|(?P<close>[{re.escape(_BRACKETS)}]+(?=\s))"
    # Thai, Lao and Khmer put a space where others put a comma.
    r"|(?P<scriptio>(?<=[\u0e00-\u0eff\u1780-\u17ff])(?=\s[\u0e00-\u0eff\u1780-\u17ff]))"
)
_WORD_END = re.compile(rf"(?:\s+|(?<={ZERO_WIDTH_SPACE}))(?=[^\s{ZERO_WIDTH_SPACE}])")
_SPACES = re.compile(r"\s*")
_LAST_WORD = re.compile(r"[^\s\"'“”‘’«»()（）\[\]{}]*$")
_DOTTED = re.compile(r"(?:[^\W\d_]\.)+[^\W\d_]?")
_NUMBER = re.compile(r"\d{1,3}")
_WORD_WINDOW = 32

# Never the last word of a sentence.
_BOUND = """
    adj adm approx bro bzw ca capt cf cmdr col d.h dott dr drs e.g eq esp fr gen gov hon i.e lt maj
    messrs mlle mm mme mr mrs ms mt mx prof rep resp rev sen sgt sig sra srta st supt u.a viz vs z.b
"""
# The last word of a sentence only if the next one starts with a capital.
_OPEN = """
    a.d a.m al apr aug ave b.c blvd bros co corp dec dept est etc feb fri inc jan jr jul jun ltd m.d
    mar mon nov oct p.m ph.d rd sat sep sept sr thu thur tue tues usf usw wed
"""
# Not the last word before a number.
_COUNTED = "abb art bd ch chap fig figs no nos nr op p par para pp sec ver vol"
_BEFORE_NAME, _BEFORE_SMALL, _BEFORE_NUMBER = (
    frozenset(words.split()) for words in (_BOUND, _OPEN, _COUNTED)
)


@dataclass(frozen=True)
class Boundaries:
    """Positions in a text after which a new piece may start, sorted, without 0 and the end.

    Attributes:
        sentences: Starts of sentences.
        clauses: Starts of clauses, the sentences' too.
        words: Starts of words, the others' too.
    """

    sentences: list[int]
    clauses: list[int]
    words: list[int]


def find_boundaries(text: str) -> Boundaries:
    """Find where ``text`` may be cut.

    A piece between two boundaries of a kind has something to pronounce in it where that can be:
    a run of punctuation stays with what comes before it.

    Args:
        text: Normalised text.
    """
    sentences: list[int] = []
    clauses: list[int] = []
    marker = _ListMarkers()
    for found in _CANDIDATE.finditer(text):
        following = _following(text, found.end())
        if not _may_cut(text, following):
            continue
        if found.lastgroup == "end":
            cut = _ends_sentence(text, found, following, sentences, marker)
            if cut is None:
                continue
            (sentences if cut else clauses).append(following)
        elif found.lastgroup != "clause" or _ends_clause(text, found, following):
            clauses.append(following)
    sentences = _keep_spoken(text, sentences)
    clauses = _keep_spoken(text, sorted({*sentences, *clauses}))
    words = [found.end() for found in _WORD_END.finditer(text)]
    words = [at for at in words if at > 0 and _may_cut(text, at)]
    words = _keep_spoken(text, sorted({*clauses, *words}))
    # The filter may drop from a finer list what the coarser one keeps.
    clauses = sorted({*sentences, *clauses})
    return Boundaries(sentences, clauses, sorted({*clauses, *words}))


class _ListMarkers:
    """The numbers of a list in running text: "1. Milk 2. Eggs"."""

    def __init__(self) -> None:
        self._last = 0

    def is_marker(self, number: str, *, starts_piece: bool) -> bool:
        value = int(number)
        if starts_piece or value == self._last + 1 > 1:
            self._last = value
            return True
        return False


def _following(text: str, position: int) -> int:
    found = _SPACES.match(text, position)
    return found.end() if found else position


def _may_cut(text: str, following: int) -> bool:
    """Whether something follows, and no character is torn."""
    if following >= len(text):
        return False
    return not joins(text[following - 1], text[following])


def _ends_sentence(
    text: str,
    found: re.Match[str],
    following: int,
    sentences: list[int],
    markers: _ListMarkers,
) -> bool | None:
    """True: a sentence ends here. False: at most a clause does. None: nothing does."""
    mark = found["end"]
    stop = found.end()
    spaced = following > stop
    upcoming = _first_letter(text, following)
    if any(character in _STRONG for character in mark):
        between_digits = text[found.start() - 1 : found.start()].isdigit() and upcoming.isdigit()
        return None if between_digits and not spaced else True
    if not spaced:
        # "Hi!你好": no space is due before a script that has none.
        dense = "\u2e80" <= text[following] <= "\ud7ff"
        return True if dense and not ("." in mark or "…" in mark) else None
    quoted = stop > found.end("end")
    if mark != ".":
        hesitates = "..." in mark or "…" in mark
        return not ((quoted or hesitates) and upcoming.islower())
    if quoted and upcoming.islower():
        return False
    return None if _is_abbreviation(text, found, upcoming, sentences, markers) else True


def _is_abbreviation(
    text: str,
    found: re.Match[str],
    upcoming: str,
    sentences: list[int],
    markers: _ListMarkers,
) -> bool:
    start = found.start()
    before = _LAST_WORD.search(text, max(0, start - _WORD_WINDOW), start)
    word = before.group() if before else ""
    lower = word.lower().lstrip("0123456789")
    if _NUMBER.fullmatch(word):
        lead = text[: start - len(word)][-2:].rstrip()
        piece_start = sentences[-1] if sentences else 0
        starts = piece_start == start - len(word) or lead.endswith((":", "(", "-", "•"))
        return markers.is_marker(word, starts_piece=starts)
    if lower in _BEFORE_NAME:
        return True
    if lower in _BEFORE_SMALL:
        return upcoming.islower() or upcoming.isdigit()
    if lower in _BEFORE_NUMBER:
        return upcoming.isdigit()
    if len(word) == 1 and word.isalpha():
        return word.isupper() or upcoming.islower()
    return bool(_DOTTED.fullmatch(word))


def _ends_clause(text: str, found: re.Match[str], following: int) -> bool:
    mark = found["clause"]
    if following > found.end():
        return True
    if not any(character in _CLAUSE_STRONG for character in mark):
        return False
    around = text[found.start() - 1 : found.start()] + text[following]
    return not (len(around) == 2 and around.isdigit())


def _first_letter(text: str, position: int) -> str:
    """The letter or digit that the next word starts with, past quotes and brackets, or ""."""
    for character in text[position : position + 8]:
        if character.isalnum():
            return character
        if character.isspace():
            break
    return ""


def _keep_spoken(text: str, cuts: list[int]) -> list[int]:
    """Drop cuts whose next piece, or the piece before the first, has nothing to pronounce."""
    kept: list[int] = []
    begun = False
    ends = [*cuts, len(text)]
    previous = 0
    for index, cut in enumerate(cuts):
        begun = begun or any(map(is_spoken, text[previous:cut]))
        previous = cut
        if begun and any(map(is_spoken, text[cut : ends[index + 1]])):
            kept.append(cut)
    return kept
