"""Numbers, times, dates and prices as the words one says; the demo voice's text has no digits."""

from __future__ import annotations

ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen"
).split()
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
MONTHS = (
    "January February March April May June July August September October November December"
).split()
_ORDINALS = {
    "one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth",
    "nine": "ninth", "twelve": "twelfth",
}  # fmt: skip
LARGEST = 9999


def cardinal(number: int, *, joined: bool = True) -> str:
    """Words of a cardinal.

    Args:
        number: 0 to 9,999.
        joined: Put "and" in front of what follows the hundreds.

    Raises:
        ValueError: ``number`` is out of range.
    """
    if not 0 <= number <= LARGEST:
        raise ValueError(f"{number} is not within 0 and {LARGEST}")
    if number < 20:
        return ONES[number]
    if number < 100:
        return " ".join([TENS[number // 10 - 2], *([ONES[number % 10]] if number % 10 else [])])
    big, unit = (1000, "thousand") if number >= 1000 else (100, "hundred")
    words = f"{ONES[number // big]} {unit}"
    rest = number % big
    if not rest:
        return words
    link = " and " if joined and rest < 100 else " "
    return words + link + cardinal(rest, joined=joined)


def ordinal(number: int) -> str:
    """Words of an ordinal, 1 to 9,999."""
    head, _, last = cardinal(number).rpartition(" ")
    if last in _ORDINALS:
        last = _ORDINALS[last]
    elif last.endswith("y"):
        last = last[:-1] + "ieth"
    else:
        last += "th"
    return f"{head} {last}".strip()


def digits(number: str) -> str:
    """A number said digit by digit."""
    return " ".join(ONES[int(digit)] for digit in number)


def clock(hour: int, minute: int) -> str:
    """A time of the twelve-hour clock as a timetable says it ("nine oh five")."""
    if minute == 0:
        return f"{cardinal(hour)} o'clock"
    return f"{cardinal(hour)} {'oh ' if minute < 10 else ''}{cardinal(minute)}"


def clock_in_quarters(hour: int, minute: int) -> str:
    """A time as people say it; only for multiples of five minutes."""
    if minute == 0:
        return f"{cardinal(hour)} o'clock"
    following = hour % 12 + 1
    past = minute <= 30
    count = minute if past else 60 - minute
    name = {15: "quarter", 30: "half"}.get(count, cardinal(count))
    return f"{name} past {cardinal(hour)}" if past else f"{name} to {cardinal(following)}"


def date(month: int, day: int) -> str:
    """A day of the year; ``month`` from 1."""
    return f"{MONTHS[month - 1]} {ordinal(day)}"


def price(dollars: int, cents: int) -> str:
    """An amount of money; at least one of both is not 0."""
    parts = []
    if dollars:
        parts.append(f"{cardinal(dollars)} dollar{'s' if dollars > 1 else ''}")
    if cents:
        parts.append(f"{cardinal(cents)} cent{'s' if cents > 1 else ''}")
    return " and ".join(parts)
