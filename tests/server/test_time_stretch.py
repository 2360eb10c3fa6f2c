"""Speed without a change of pitch, in pieces."""

from __future__ import annotations

import numpy as np
import pytest

from boardvoice.server.time_stretch import TimeStretch

RATE = 48_000


def stretched(samples, speed, size):
    stretch = TimeStretch(RATE, speed)
    pieces = [stretch.push(samples[at : at + size]) for at in range(0, len(samples), size)]
    return np.concatenate([*pieces, stretch.finish()])


def voice(seconds=1.0, pitch=140.0):
    time = np.arange(int(RATE * seconds)) / RATE
    return sum(np.sin(2 * np.pi * pitch * k * time) / k for k in range(1, 8)).astype("f4") / 4


@pytest.mark.parametrize("speed", [0.25, 0.7, 1.0, 1.3, 2.0, 4.0])
def test_length_follows_speed_and_pitch_stays(speed):
    whole = stretched(voice(), speed, 7680)
    assert len(whole) == round(RATE / speed)
    middle = whole[len(whole) // 4 : -len(whole) // 4]
    spectrum = np.abs(np.fft.rfft(middle * np.hanning(len(middle)), 1 << 18))
    assert abs(np.argmax(spectrum) * RATE / (1 << 18) - 140.0) < 3.0


@pytest.mark.parametrize("speed", [0.5, 1.7])
def test_pieces_of_any_size_give_the_same_samples(speed):
    noise = np.random.default_rng(3).standard_normal(30_000).astype("f4")
    expected = stretched(noise, speed, 30_000)
    for size in (997, 7680):
        assert np.array_equal(stretched(noise, speed, size), expected)


@pytest.mark.parametrize("length", [0, 1, 100, 2000])
def test_short_and_silent_audio(length):
    assert len(stretched(np.zeros(length, "f4"), 1.5, 7680)) == round(length / 1.5)


def test_at_speed_one_nothing_changes():
    assert np.array_equal(stretched(voice(), 1.0, 7680), voice())
