"""What the demo voice is taught to say."""

from __future__ import annotations

import re
import string
from itertools import islice

import pytest

from boardvoice.demo_voice import spoken_numbers as say
from training.demo_voice.corpus import held_out_texts
from training.demo_voice.texts import TextGenerator, closed_sentences, vocabulary


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "zero"), (13, "thirteen"), (40, "forty"), (42, "forty two"), (100, "one hundred"),
        (105, "one hundred and five"), (999, "nine hundred and ninety nine"),
        (1000, "one thousand"), (2007, "two thousand and seven"),
        (9999, "nine thousand nine hundred and ninety nine"),
    ],
)  # fmt: skip
def test_cardinals_are_read(number: int, words: str) -> None:
    assert say.cardinal(number) == words


@pytest.mark.parametrize("number", [-1, 10000])
def test_cardinal_out_of_range_is_refused(number: int) -> None:
    with pytest.raises(ValueError, match=str(number)):
        say.cardinal(number)


def test_all_cardinals_differ() -> None:
    assert len({say.cardinal(number) for number in range(10000)}) == 10000


@pytest.mark.parametrize(
    ("number", "words"),
    [(1, "first"), (2, "second"), (12, "twelfth"), (20, "twentieth"), (21, "twenty first"),
     (30, "thirtieth"), (43, "forty third"), (100, "one hundredth"), (8, "eighth")],
)  # fmt: skip
def test_ordinals_are_read(number: int, words: str) -> None:
    assert say.ordinal(number) == words


def test_times_dates_and_prices_are_read() -> None:
    assert say.clock(9, 5) == "nine oh five"
    assert say.clock(12, 0) == "twelve o'clock"
    assert say.clock_in_quarters(12, 45) == "quarter to one"
    assert say.clock_in_quarters(4, 30) == "half past four"
    assert say.clock_in_quarters(4, 10) == "ten past four"
    assert say.date(3, 22) == "March twenty second"
    assert say.price(1, 0) == "one dollar"
    assert say.price(2, 1) == "two dollars and one cent"
    assert say.digits("407") == "four zero seven"


def test_same_seed_gives_the_same_sentences() -> None:
    assert TextGenerator(7).take(50) == TextGenerator(7).take(50)
    assert TextGenerator(7).take(50) != TextGenerator(8).take(50)


def test_no_sentence_comes_twice_nor_from_the_other_set() -> None:
    other = frozenset(TextGenerator(11).take(200))
    sentences = TextGenerator(7, other).take(3000)
    assert len(set(sentences)) == 3000
    assert not other & set(sentences)


def test_sentences_are_plain_and_over_four_hundred_words() -> None:
    allowed = set(string.ascii_letters + " .,:?'")
    words: set[str] = set()
    for sentence in islice(TextGenerator(3), 4000):
        assert set(sentence) <= allowed
        assert sentence[0].isupper()
        assert sentence[-1] in ".?"
        assert not re.search(r"\ba [aeiou]", sentence)
        words |= set(re.findall(r"[a-z']+", sentence.lower()))
    assert len(words) >= 400


def test_held_out_sentences_are_200_that_the_templates_could_give_and_training_does_not():
    held_out = held_out_texts()
    assert len(set(held_out)) == len(held_out) == 200
    assert not set(closed_sentences()) & set(held_out)
    words = vocabulary()
    for sentence in held_out:
        assert set(re.findall(r"[a-z']{2,}", sentence.lower())) <= words
    assert not set(held_out) & set(TextGenerator(7, frozenset(held_out)).take(3000))


def test_closed_templates_are_training_data_as_a_whole() -> None:
    closed = closed_sentences()
    assert "Doors are opening." in closed
    assert "It is sunny outside." not in closed
    assert len(set(closed)) == len(closed)
    assert not set(closed) & set(held_out_texts())
