"""Faster or slower speech at the same pitch, as it streams (WSOLA)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]

_FRAME_S = 0.04
_SEEK_S = 0.01


class TimeStretch:
    """Overlap-adds frames of 40 ms, each taken where it best goes on from the one before.

    Args:
        sample_rate: In Hz.
        speed: Above 1 is faster.

    Source: Verhelst and Roelands, 1993, "An overlap-add technique based on waveform similarity".
    """

    def __init__(self, sample_rate: int, speed: float) -> None:
        self._half = round(sample_rate * _FRAME_S / 2)
        self._seek = round(sample_rate * _SEEK_S)
        self._speed = speed
        phase = (np.arange(self._half, dtype=np.float32) + 0.5) / self._half
        self._rise = np.sin(phase * (np.pi / 2)).astype(np.float32) ** 2
        self._held = np.zeros(0, np.float32)
        # Index, in the whole input, of the first sample held.
        self._start = 0
        self._taken = 0
        self._frames = 0
        self._given = 0
        self._tail: FloatArray | None = None

    def push(self, samples: FloatArray) -> FloatArray:
        """Take samples [n]; return what is ready [m]."""
        if self._speed == 1.0:
            return samples
        self._taken += len(samples)
        self._held = np.concatenate([self._held, samples])
        pieces = []
        while self._position() + self._seek + 2 * self._half <= self._start + len(self._held):
            pieces.append(self._frame())
        self._given += sum(map(len, pieces))
        return np.concatenate(pieces) if pieces else np.zeros(0, np.float32)

    def finish(self) -> FloatArray:
        """The rest; the whole output has round(input / speed) samples."""
        if self._speed == 1.0:
            return np.zeros(0, np.float32)
        wanted = round(self._taken / self._speed)
        rest: list[FloatArray] = []
        padding = np.zeros(self._half, np.float32)
        while self._given + sum(map(len, rest)) < wanted:
            end = self._position() + self._seek + 2 * self._half
            while self._start + len(self._held) < end:
                self._held = np.concatenate([self._held, padding])
            rest.append(self._frame())
        joined = np.concatenate([*rest, np.zeros(0, np.float32)])
        return joined[: max(wanted - self._given, 0)]

    def _position(self) -> int:
        """Where the next frame would be taken without a search."""
        return round(self._frames * self._half * self._speed)

    def _frame(self) -> FloatArray:
        at = self._position() - self._start
        if self._tail is not None:
            low = max(at - self._seek, 0)
            at = low + self._best(self._held[low : at + self._seek + self._half], self._tail)
        frame = self._held[at : at + 2 * self._half]
        head = frame[: self._half]
        if self._tail is not None:
            head = head * self._rise + self._tail * (1 - self._rise)
        self._tail = frame[self._half :].copy()
        self._frames += 1
        done = max(min(self._position() - self._seek - self._start, len(self._held)), 0)
        self._held = self._held[done:]
        self._start += done
        return head.astype(np.float32, copy=False)

    @staticmethod
    def _best(region: FloatArray, tail: FloatArray) -> int:
        """Offset in the region whose samples are most like the tail."""
        likeness = np.correlate(region, tail, "valid")
        squares = np.concatenate([[0.0], np.cumsum(region.astype(np.float64) ** 2)])
        energy = squares[len(tail) :] - squares[: -len(tail)]
        return int(np.argmax(likeness / np.sqrt(np.maximum(energy, 1e-9))))
