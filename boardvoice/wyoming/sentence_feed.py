"""Text that arrives in bits, handed on in whole sentences."""

from __future__ import annotations

import asyncio
import re

from boardvoice.server.refusal import Refusal
from edge_runtime.text.boundaries import find_boundaries
from edge_runtime.text.characters import is_spoken
from edge_runtime.text.normalize import split_design

_PARAGRAPH = re.compile(r"\n\s*\n")
# A text without an end is searched again only when it has grown by this part of itself, so that
# a client that sends single characters costs no more than one that sends lines.
_GROWTH = 16


class SentenceFeed:
    """What was added, piece by piece; a sentence is whole when the next one has begun.

    Args:
        max_chars: Most characters in all.

    Attributes:
        waits: Whether somebody waits for the next piece.
    """

    def __init__(self, max_chars: int) -> None:
        self._max_chars = max_chars
        self._chars = 0
        self._open = ""
        self._searched = 0
        self._whole = ""
        self._design = ""
        self._begun = False
        self._ended = False
        self._changed = asyncio.Event()
        self.waits = False

    @staticmethod
    def of(text: str, max_chars: int) -> SentenceFeed:
        """All of a text, as one piece."""
        feed = SentenceFeed(max_chars)
        feed._count(text)
        feed._whole, feed._ended = text, True
        return feed

    def add(self, text: str) -> None:
        """Take a bit of text.

        Raises:
            Refusal: More characters than are allowed.
        """
        self._count(text)
        self._open += text
        if len(self._open) - self._searched > self._searched // _GROWTH:
            self._cut()

    def end(self) -> None:
        """There is no more; what is left is a sentence."""
        self._whole += self._open
        self._open = ""
        self._ended = True
        self._changed.set()

    async def take(self) -> str | None:
        """All sentences that are whole, or None at the end; waits for the first.

        A voice design that leads the text leads every piece.
        """
        while True:
            piece, self._whole = self._whole, ""
            # An assistant's text has lines of stars and dashes; alone they cannot be spoken.
            if any(map(is_spoken, piece)):
                return self._designed(piece)
            if self._ended:
                return None
            self._changed.clear()
            self.waits = True
            try:
                await self._changed.wait()
            finally:
                self.waits = False

    def _designed(self, piece: str) -> str:
        piece = piece.strip()
        if not self._begun:
            self._begun = True
            self._design = split_design(" ".join(piece.split()))[0]
            return piece
        return self._design + piece

    def _count(self, text: str) -> None:
        self._chars += len(text)
        if self._chars > self._max_chars:
            raise Refusal(
                400, "string_above_max_length",
                f"The text has more than {self._max_chars} characters. Send it in parts.",
            )  # fmt: skip

    def _cut(self) -> None:
        paragraphs = [found.end() for found in _PARAGRAPH.finditer(self._open)]
        # Every kind of space is one character in the copy too, so positions are the same.
        flat = re.sub(r"\s", " ", self._open)
        at = max([0, *paragraphs[-1:], *find_boundaries(flat).sentences[-1:]])
        self._whole += self._open[:at]
        self._open = self._open[at:]
        self._searched = len(self._open)
        if self._whole:
            self._changed.set()
