"""Pauses, repetitions, ends and spectra."""

from __future__ import annotations

import numpy as np
import pytest

from boardvoice.evaluation.checks import ends_early, log_spectral_distance, longest_pause, repeats

RATE = 16000


def sound(seconds: float) -> np.ndarray:
    return np.sin(np.arange(int(RATE * seconds)) * 0.1).astype(np.float32)


def test_longest_pause_lies_between_sounds() -> None:
    silence = np.zeros(RATE, np.float32)
    audio = np.concatenate([silence, sound(0.5), silence[: RATE // 2], sound(0.5), silence])
    assert longest_pause(audio, RATE) == pytest.approx(0.5, abs=0.03)


def test_all_silence_is_one_pause() -> None:
    assert longest_pause(np.zeros(RATE, np.float32), RATE) == 1.0
    assert longest_pause(np.zeros(3, np.float32), RATE) == 0.0


def test_words_said_twice_are_a_repetition_unless_the_text_has_them() -> None:
    text = "turn left at the bank".split()
    assert repeats(text, "turn left turn left at the bank".split())
    assert not repeats(text, text)
    assert not repeats("two two two two".split(), "two two two two".split())


def test_missing_last_words_are_an_early_end() -> None:
    text = "your order is ready now".split()
    assert ends_early(text, "your order is".split())
    assert not ends_early(text, text)
    assert not ends_early(text, "your order is steady how".split())


def test_spelled_letters_that_are_heard_as_a_word_are_no_early_stop() -> None:
    text = "the password is j i s p".split()
    for heard in ("jisp", "j isp", "jiacle", "j i s p"):
        assert not ends_early(text, ["the", "password", "is", *heard.split()])
    assert ends_early(text, ["the", "password"])


def test_distance_is_zero_for_the_same_and_six_decibel_for_twice_as_loud() -> None:
    noise = np.random.default_rng(0).normal(0, 0.1, RATE).astype(np.float32)
    assert log_spectral_distance(noise, noise) == 0
    assert log_spectral_distance(noise, 2 * noise) == pytest.approx(6.02, abs=0.2)
    assert log_spectral_distance(noise[:100], noise) == 0
