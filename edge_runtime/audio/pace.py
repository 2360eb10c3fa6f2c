"""How much audio must be there before sound starts, so that slow speech is not broken."""

from __future__ import annotations

import time
from collections.abc import Callable

# A slow reader of English says so many characters a second; one of Chinese, Japanese or Korean
# (from U+2E80 on) so many. Too long a guess costs a later start, too short a one a gap.
_CHARS_PER_SECOND = 12.0
_WIDE_CHARS_PER_SECOND = 4.0
_FIRST_WIDE = "\u2e80"
# Share by which the measured speed may fall later: rows are added to the KV cache meanwhile.
_MARGIN = 1.1
# Audio that is measured before it is believed, in seconds.
_LEAST_MEASURED = 0.3
# Most seconds of lead: 11.5 MB at 48 kHz.
_LONGEST_LEAD = 60.0


class Pace:
    """Measures how fast audio is made and says how much of it must be ahead.

    With ``L`` seconds of speech to come in all, made at a real-time factor ``r``, sound that
    starts when ``a`` seconds are there reaches its end at ``L``; the last sample is made at
    ``r (L - a)``. It is in time if ``a >= L (1 - 1 / r)``, and so is every sample before it.

    Args:
        expected_seconds: How long the speech may be.
        clock: Seconds that go on; for tests.
    """

    def __init__(
        self, expected_seconds: float, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._expected = expected_seconds
        self._clock = clock
        self._began: float | None = None
        self._took = 0.0
        self._after_first = 0.0
        self._made = 0.0

    @staticmethod
    def of_text(text: str) -> Pace:
        """For a text; a voice design in parentheses before it is not spoken."""
        words = text.strip()
        if words.startswith("(") and ")" in words:
            words = words[words.index(")") + 1 :]
        wide = sum(letter >= _FIRST_WIDE for letter in words)
        return Pace(wide / _WIDE_CHARS_PER_SECOND + (len(words) - wide) / _CHARS_PER_SECOND)

    def note(self, seconds: float) -> None:
        """So many seconds of audio have just been made."""
        now = self._clock()
        self._made += seconds
        if self._began is None:
            # What came before the first piece (loading, prefill) comes once.
            self._began = now
            return
        self._after_first += seconds
        self._took = now - self._began

    @property
    def rtf(self) -> float | None:
        """Time over audio since the first piece; None until enough was measured."""
        if self._after_first < _LEAST_MEASURED:
            return None
        return self._took / self._after_first

    @property
    def lead(self) -> float | None:
        """Seconds that must be there when sound starts, 0 to 60; None while it is not known."""
        rtf = self.rtf
        if rtf is None:
            return None
        slow = rtf * _MARGIN
        if slow <= 1.0:
            return 0.0
        return min(max(self._expected, self._made) * (1.0 - 1.0 / slow), _LONGEST_LEAD)
