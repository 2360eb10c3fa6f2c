"""Text as the demo voice knows it."""

from __future__ import annotations

import re
from importlib.resources import files
from itertools import islice

import pytest

from boardvoice.demo_voice.spoken_text import spoken_text, unheard_words
from training.demo_voice.texts import TextGenerator, vocabulary


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("Counter 7.", "Counter seven."),
        ("Now serving 42, 1,500 and 9999.",
         "Now serving forty two, one thousand five hundred and nine thousand nine hundred "
         "and ninety nine."),
        ("Code 007 or 123456.", "Code zero zero seven or one two three four five six."),
        ("It is 9:05.", "It is nine oh five."),
        ("It is 12:00.", "It is twelve o'clock."),
        ("The 21st door.", "The twenty first door."),
        ("It costs $5.25 or $1.", "It costs five dollars and twenty five cents or one dollar."),
        ("It costs $0.", "It costs zero dollars."),
        ("The battery is at 80%.", "The battery is at eighty percent."),
        ("Ticket B12.", "Ticket B twelve."),
        ("3.5 meters.", "three point five meters."),
        ("No digits here.", "No digits here."),
    ],
)  # fmt: skip
def test_numbers_become_words(written, spoken):
    assert spoken_text(written) == spoken


def test_no_digit_is_left_whatever_is_around_it():
    for text in ("$12.5", "25:99", "0%", "1,2,3", "99999th", "$1,000,000.00", "v1.2.3", "٤٢ and 7"):
        assert not re.search(r"[0-9]", spoken_text(text))


def test_words_of_the_generator_are_all_known_and_others_are_named():
    for sentence in islice(TextGenerator(5), 5000):
        assert unheard_words(sentence) == []
    assert unheard_words("Please reboot the Quantum gate, reboot!") == ["reboot", "Quantum"]


def test_shipped_words_are_the_generators():
    shipped = (files("boardvoice") / "demo_voice" / "words.txt").read_text("utf-8")
    assert shipped.split() == sorted(vocabulary())
