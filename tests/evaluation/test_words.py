"""Word errors do not count ways of writing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boardvoice.evaluation.words import normalized_words, word_errors


@pytest.mark.parametrize(
    ("said", "written"),
    [
        ("nine oh five", "9:05"),
        ("twelve o'clock", "12:00"),
        ("twenty five dollars and ninety cents", "$25.90"),
        ("one hundred and five", "105"),
        ("January sixteenth", "January 16th"),
        ("two thousand and seven", "2,007"),
        ("flight S J eight hundred thirty six", "Flight SJ836"),
        ("check in desk", "check-in desk"),
        ("six, ten, eight", "6, 10, 8."),
        ("one hundred percent", "100%"),
        ("the ninety ninth visitor", "the 99th visitor"),
        ("Mister Brown", "Mr. Brown"),
    ],
)
def test_the_same_words_written_otherwise_are_no_error(said: str, written: str) -> None:
    assert word_errors(normalized_words(said), normalized_words(written)) == 0


@pytest.mark.parametrize(
    ("said", "heard", "errors"),
    [
        ("turn left at the bank", "turn right at the bank", 1),
        ("turn left at the bank", "turn left at bank", 1),
        ("turn left", "turn left left", 1),
        ("number forty two", "number forty three", 1),
        ("number twelve", "", 3),
    ],
)
def test_wrong_missing_and_extra_words_count(said: str, heard: str, errors: int) -> None:
    assert word_errors(normalized_words(said), normalized_words(heard)) == errors


_WORDS = st.lists(st.sampled_from(["a", "b", "ab", "ba", "7"]), max_size=6)


@given(_WORDS, _WORDS)
def test_errors_are_symmetric_and_bounded(first: list[str], second: list[str]) -> None:
    errors = word_errors(first, second)
    assert errors == word_errors(second, first)
    assert 0 <= errors <= max(len(first), len(second))
    assert word_errors(first, first) == 0
