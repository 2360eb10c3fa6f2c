"""What can be told from audio or from heard words without another model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]

_FRAME_S = 0.02
_SILENT_DB = -40.0
_FFT, _HOP = 1024, 256
_FLOOR = 1e-3


def longest_pause(audio: FloatArray, rate: int) -> float:
    """Longest silence between two sounds, in seconds; the whole length where all is silent.

    A frame of 20 ms is silent when it is 40 dB below the loudest.
    """
    size = int(rate * _FRAME_S)
    count = len(audio) // size
    if count == 0:
        return 0.0
    power = np.square(audio[: count * size].reshape(count, size)).mean(1)
    loudest = float(power.max())
    if loudest < 1e-8:
        return len(audio) / rate
    loud = np.flatnonzero(power > loudest * 10 ** (_SILENT_DB / 10))
    return float(np.diff(loud).max(initial=1) - 1) * _FRAME_S


def repeats(reference: Sequence[str], heard: Sequence[str]) -> bool:
    """Whether two or more words follow themselves in what was heard, and do not in the text."""
    wanted = _echoes(reference)
    return any(echo not in wanted for echo in _echoes(heard))


def ends_early(reference: Sequence[str], heard: Sequence[str]) -> bool:
    """Whether the last two words of the text are missing and nothing came in their place.

    Letters in a row are one word: a recogniser that hears J I S P writes JISP.
    """
    reference, heard = _letters_joined(reference), _letters_joined(heard)
    tail = reference[-2:]
    return len(heard) <= len(reference) - len(tail) and heard[-2:] != tail


def _letters_joined(words: Sequence[str]) -> list[str]:
    joined: list[str] = []
    after_letter = False
    for word in words:
        letter = len(word) == 1 and word.isalpha()
        if letter and after_letter:
            joined[-1] += word
        else:
            joined.append(word)
        after_letter = letter
    return joined


def log_spectral_distance(first: FloatArray, second: FloatArray) -> float:
    """Root mean square difference of log spectra in dB, mean over frames of 1024 samples.

    The longer one is cut: audio of one seed and text that differs in length differs in content.
    """
    length = min(len(first), len(second))
    if length < _FFT:
        return 0.0
    window = np.hanning(_FFT).astype(np.float32)

    def spectrum(audio: FloatArray) -> npt.NDArray[np.float64]:
        rows = np.lib.stride_tricks.sliding_window_view(audio[:length], _FFT)[::_HOP]
        size = np.abs(np.fft.rfft(rows * window, axis=1)).astype(np.float64)
        decibel: npt.NDArray[np.float64] = 20 * np.log10(size + _FLOOR * _FFT**0.5)
        return decibel

    difference = spectrum(first) - spectrum(second)
    return float(np.sqrt(np.square(difference).mean(1)).mean())


def _echoes(words: Sequence[str]) -> set[tuple[str, ...]]:
    found = set()
    for size in range(2, len(words) // 2 + 1):
        for start in range(len(words) - 2 * size + 1):
            piece = tuple(words[start : start + size])
            if piece == tuple(words[start + size : start + 2 * size]):
                found.add(piece)
    return found
