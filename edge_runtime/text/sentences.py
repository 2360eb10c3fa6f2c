"""Cutting a long text into pieces that fit, at the best places for the voice."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable

from edge_runtime.errors import CapacityError
from edge_runtime.text.boundaries import Boundaries, find_boundaries
from edge_runtime.text.characters import cluster_ends, is_spoken

# A word longer than this is searched for a cut inside before it is tried as a whole, so that a
# text without spaces is not measured from end to end for every piece.
_LONG_WORD = 64
_FIRST_GUESS = 256


def chunk_text(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Cut text into pieces that fit, as few as reach.

    Each piece takes as many whole sentences as fit. A sentence that does not fit is cut after
    its last clause that does, else after the last word, else between user-perceived characters.
    A piece of punctuation alone stays with its neighbour where that fits.

    Args:
        text: Normalised text.
        fits: Whether one piece fits; true for a short piece whenever true for a longer one.
            Called with pieces of about the length that fits, a dozen times or so for each.

    Returns:
        The pieces in order, stripped, none empty. Joined, they are the text less whitespace
        at the cuts. No pieces for a text without any character but space.

    Raises:
        CapacityError: Not even one character fits.
    """
    cutter = _Cutter(text, fits)
    pieces: list[str] = []
    position = 0
    while position < len(text):
        end = cutter.next_cut(position)
        if piece := text[position:end].strip():
            pieces.append(piece)
        position = end
    return pieces


class _Cutter:
    """One pass over a text, from cut to cut."""

    def __init__(self, text: str, fits: Callable[[str], bool]) -> None:
        self._text = text
        self._fits = fits
        self._boundaries: Boundaries = find_boundaries(text)
        self._words = [*self._boundaries.words, len(text)]
        self._guess = _FIRST_GUESS
        self._spoken = -1
        self._clusters: list[int] = []

    def next_cut(self, start: int) -> int:
        """The best place to end the piece that begins at ``start``."""
        spoken = self._next_spoken(start)
        first = bisect_right(self._words, spoken)
        word_end = self._words[first] if first < len(self._words) else len(self._text)
        if word_end - start > _LONG_WORD:
            end = self._cut_word(start, spoken, word_end)
            if end < word_end:
                return end
        found = self._last_fitting(start, self._words, first)
        if found is None:
            return self._cut_word(start, spoken, word_end)
        return self._prefer(start, spoken, found)

    def _prefer(self, start: int, spoken: int, end: int) -> int:
        """The last sentence end up to ``end``, else the last clause end, else ``end``."""
        if end == len(self._text):
            return end
        for cuts in (self._boundaries.sentences, self._boundaries.clauses):
            index = bisect_right(cuts, end) - 1
            if index >= 0 and cuts[index] > spoken and self._fit(start, cuts[index]):
                return cuts[index]
        return end

    def _cut_word(self, start: int, spoken: int, word_end: int) -> int:
        """The last place in a word up to which a piece fits; ``word_end`` if all of it does."""
        if not self._clusters or self._clusters[-1] != word_end:
            self._clusters = cluster_ends(self._text, start, word_end)
        clusters = self._clusters
        found = self._last_fitting(start, clusters, bisect_right(clusters, spoken))
        if found is None:
            # What is said does not fit together with the punctuation before it.
            found = self._last_fitting(start, clusters, bisect_right(clusters, start))
        if found is None:
            raise self._too_small(start, clusters)
        return found if found == word_end else self._tidy(start, spoken, found)

    def _tidy(self, start: int, spoken: int, end: int) -> int:
        """Move a cut in a word back out of punctuation or a Latin name, where that can be."""
        text = self._text
        for index in range(bisect_left(self._clusters, end), -1, -1):
            cut = self._clusters[index]
            if cut <= spoken:
                break
            before, after = text[cut - 1], text[cut]
            tears = (before + after).isascii() and before.isalnum() and after.isalnum()
            if is_spoken(after) and not tears:
                return cut if cut == end or self._fit(start, cut) else end
        return end

    def _last_fitting(self, start: int, ends: list[int], first: int) -> int | None:
        """The last of ``ends[first:]`` up to which the piece from ``start`` fits, or None.

        Starts near the length that fitted last time and doubles its stride from there.
        """
        last = len(ends) - 1
        if first > last:
            return None
        probe = min(max(bisect_right(ends, start + self._guess) - 1, first), last)
        good, bad = first - 1, last + 1
        stride = 1
        while good + 1 < bad:
            if self._fit(start, ends[probe]):
                good = probe
            else:
                bad = probe
            if bad > last:
                probe = min(good + stride, last)
            elif good < first:
                probe = max(bad - stride, first)
            else:
                probe = (good + bad) // 2
            stride *= 2
        if good < first:
            return None
        self._guess = ends[good] - start
        return ends[good]

    def _fit(self, start: int, end: int) -> bool:
        piece = self._text[start:end].strip()
        return not piece or self._fits(piece)

    def _next_spoken(self, start: int) -> int:
        """Position of the first character to pronounce from ``start``, or the text's end."""
        if self._spoken < start:
            self._spoken = next(
                (at for at in range(start, len(self._text)) if is_spoken(self._text[at])),
                len(self._text),
            )
        return self._spoken

    def _too_small(self, start: int, clusters: list[int]) -> CapacityError:
        end = clusters[bisect_right(clusters, start)]
        return CapacityError(
            f"Not even one character of the text fits: {self._text[start:end][:20]!r} "
            f"at position {start}.",
            remedy="Shorten the voice design or the reference, or raise the capacity.",
        )
