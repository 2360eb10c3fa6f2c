"""Trimming of quiet ends, as the official package does it on request."""

from __future__ import annotations

import numpy as np

from edge_runtime.audio.load import Samples

_FRAME = 2048
_HOP = 512
_FRAMES_AT_ONCE = 512
_LEAST_POWER = 1e-10


def trim_silence(
    audio: Samples, sample_rate: int, *, max_silence_ms: float = 200.0, top_db: float = 35.0
) -> Samples:
    """Cut long silence and low noise off both ends, keeping up to ``max_silence_ms`` of each.

    Args:
        audio: ``[samples]`` float32.
        sample_rate: In Hz.
        max_silence_ms: Silence kept at each end, in milliseconds.
        top_db: A frame this much quieter than the loudest is silence, in decibels.

    Returns:
        A view of ``audio``; all of it where it is empty or silent.

    Source: ``voxcpm.model.voxcpm2._trim_audio_silence_vad``, version 2.0.3, which calls
    ``librosa.effects.trim``.
    """
    size = len(audio)
    peak = np.max(np.abs(audio)) if size else np.float32(0.0)
    if peak <= 0:
        return audio
    centred = _power(np.pad(audio, _FRAME // 2))
    level = 10.0 * np.log10(np.maximum(_LEAST_POWER, centred))
    loud = np.flatnonzero(level - level.max() > -top_db)
    start, end = 0, 0
    if len(loud):
        start, end = int(loud[0]) * _HOP, min(size, (int(loud[-1]) + 1) * _HOP)

    # A quiet tail that the level relative to the loudest frame lets pass falls to the peak's.
    threshold = peak * (10.0 ** (-top_db / 20.0))
    voiced = np.flatnonzero(np.sqrt(_power(audio)) >= threshold)
    if len(voiced):
        end = min(end, size, int(voiced[-1]) * _HOP + _FRAME)

    kept = int(max_silence_ms * sample_rate / 1000.0)
    return audio[max(0, start - kept) : min(size, end + kept)]


def _power(audio: Samples) -> Samples:
    """Mean square of every whole frame, ``[frames]``."""
    if len(audio) < _FRAME:
        return np.empty(0, np.float32)
    frames = np.lib.stride_tricks.sliding_window_view(audio, _FRAME)[::_HOP]
    parts = [
        np.mean(frames[at : at + _FRAMES_AT_ONCE] ** 2, axis=1, dtype=np.float32)
        for at in range(0, len(frames), _FRAMES_AT_ONCE)
    ]
    return np.concatenate(parts)
