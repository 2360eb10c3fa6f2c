"""Teacher speech: hibari-tts (Apache-2.0), with its pitch moved onto the codec's frame grid.

hibari's network predicts a spectrum that is filtered pulses, noise and a free part; its own signal
processing then draws the pulses from the pitch. Here the pulses are drawn anew, directly at 16 kHz:
in every latent frame of 40 ms the pitch is scaled so that a whole number of periods fits. What a
decoder has to draw then depends on the frame's contents alone, not on where in a period the frame
happens to start, and waveform losses have something to hold on to.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]
Pitch = Literal["natural", "grid", "flat"]

RATE = 16000
FRAME = 640  # samples of one latent frame
PATCH = 4 * FRAME
_SIZE, _HOP, _BINS = 800, 200, 401  # hibari's 1200 / 300 at 24 kHz
_VOICED_HZ = 40.0
_TOP_HZ = 7900.0
_FLAT_HZ = 200.0
_LEAD_FRAMES, _TAIL_FRAMES = 4, 10
_GAIN = 1.5
_WINDOW = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(_SIZE) / _SIZE)).astype(np.float32)


@dataclass(frozen=True)
class Utterance:
    """Teacher speech and what is said when.

    Attributes:
        audio: 16 kHz, a whole number of patches.
        phonemes: hibari's phoneme id in the middle of each latent frame, 0 for silence.
        words: Index of the word (of ``text.split()``) in each latent frame, -1 for none, or None
            where hibari's words are not the text's.
    """

    audio: FloatArray
    phonemes: NDArray[np.int16]
    words: NDArray[np.int16] | None


class HibariTeacher:
    """Speaks with hibari's own voice.

    Args:
        pitch: ``natural``, ``grid`` (a whole number of periods per frame) or ``flat`` (200 Hz).
    """

    def __init__(self, pitch: Pitch) -> None:
        from hibari import Hibari

        self._model: Any = Hibari()
        self._session = _with_durations(self._model.model_path)
        self._pitch = pitch

    def say(self, text: str, seed: int) -> Utterance:
        """Speech with some silence at both ends."""
        pieces, spoken, word_of, word = [], [], [], 0
        for phrase in self._model.phonemize(_readable(text)):
            # hibari leaves out phonemes that it does not know; so must the list.
            known = [c for c in phrase if c in self._model.vocab]
            ids = [0, *(self._model.vocab[c] for c in known), 0]
            *spectra, durations = self._phrase(ids)
            at = np.asarray([-1, *(word + np.cumsum([c == " " for c in known])), -1])
            at[[i for i, c in enumerate(["", *known, ""]) if not c.strip(" .,?!")]] = -1
            word += phrase.count(" ") + 1
            pieces.append(spectra)
            spoken.append(np.repeat(ids, durations))
            word_of.append(np.repeat(at, durations))
        spectra = [np.concatenate(part, axis=-1) for part in zip(*pieces, strict=True)]
        rng = np.random.default_rng(seed)
        spectra = [np.concatenate(part, axis=-1) for part in zip(*pieces, strict=True)]
        first, last = _spoken_span(spectra)
        harmonic, turn, noise, free, phase, pitch = (part[..., first:last] for part in spectra)
        frames = pitch.shape[0]
        pulses = self._pulses(pitch)
        spectrum = _stft(pulses, frames) * np.exp(
            np.minimum(harmonic, 7) + 1j * np.pi * np.tanh(turn)
        )
        shape = harmonic.shape
        random = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
        spectrum += random * np.exp(np.minimum(noise, 7))
        spectrum += np.exp(np.minimum(free, 7) + 1j * phase)
        audio = _istft(spectrum) * _GAIN
        padded = np.zeros(-(-len(audio) // PATCH) * PATCH, np.float32)
        padded[: len(audio)] = audio
        middle = (np.arange(len(padded) // FRAME) * FRAME + FRAME // 2) // _HOP
        labels = [
            np.append(np.concatenate(part)[first:last], none)[np.minimum(middle, frames)]
            for part, none in ((spoken, 0), (word_of, -1))
        ]
        matched = word == len(text.split())
        return Utterance(
            padded, labels[0].astype(np.int16), labels[1].astype(np.int16) if matched else None
        )

    def _phrase(self, ids: list[int]) -> list[Any]:
        inputs = {"ids": np.asarray([ids], np.int64), "speed": np.ones(1, np.float32)}
        *outputs, durations = self._session.run(None, inputs)
        # Bins above 8 kHz are left out, which is the change of rate.
        spectra = [part[0][..., :_BINS, :] if part.ndim == 3 else part[0] for part in outputs]
        # The network counts durations in pairs of frames.
        return [*spectra, 2 * durations.reshape(-1).astype(np.int64)]

    def _pulses(self, pitch: FloatArray) -> FloatArray:
        frames = len(pitch)
        at = (np.arange(frames * _HOP) + 0.5) / _HOP - 0.5
        hertz = np.interp(at, np.arange(frames), pitch)
        voiced = hertz > _VOICED_HZ
        if self._pitch == "flat":
            hertz = np.full_like(hertz, _FLAT_HZ)
        elif self._pitch == "grid":
            hertz = _on_grid(hertz, voiced)
        hertz = np.maximum(hertz, _VOICED_HZ)
        turns = np.cumsum(hertz) / RATE
        angle = 2 * np.pi * np.modf(turns)[0]
        harmonics = np.floor(_TOP_HZ / hertz)
        half = 2 * np.sin(angle / 2)
        near = np.abs(half) <= 2e-3
        train = np.where(
            near, harmonics + 0.5, np.sin((harmonics + 0.5) * angle) / np.where(near, 1, half)
        )
        return np.where(voiced, train - 0.5, 0).astype(np.float32)


def _with_durations(path: str) -> Any:
    """hibari's network with its phoneme durations, in frames, as one more output."""
    import onnx
    import onnxruntime

    model = onnx.load(path)
    (duration,) = (n.output[0] for n in model.graph.node if n.op_type == "Clip")
    model.graph.output.append(onnx.ValueInfoProto(name=duration))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def _readable(text: str) -> str:
    # hibari says a single "A" as the article.
    return re.sub(r"(?<=[a-zA-Z] )A(?=[ .,])", "ay", text)


def _on_grid(hertz: NDArray[np.float64], voiced: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Scale the pitch within each frame so that a whole number of periods fits."""
    moved = hertz.copy()
    periods = 8
    for start in range(0, len(hertz), FRAME):
        part = slice(start, start + FRAME)
        count = len(hertz[part])
        inside = voiced[part]
        if inside.any():
            wanted = float(hertz[part][inside].mean()) * FRAME / RATE
            # Some reluctance keeps the pitch from flickering between two steps.
            if abs(wanted - periods) > 0.65:
                periods = int(min(11, max(5, round(wanted))))
        shape = np.where(inside, hertz[part], hertz[part][inside].mean() if inside.any() else 200.0)
        full = float(shape.sum()) * FRAME / count / RATE
        moved[part] = shape * (periods / full)
    return moved


def _spoken_span(spectra: list[Any]) -> tuple[int, int]:
    harmonic, _, noise, free, _, pitch = spectra
    power = np.exp(2 * np.minimum(harmonic, 7)) * (pitch > _VOICED_HZ)
    power = (power + np.exp(2 * np.minimum(noise, 7)) + np.exp(2 * np.minimum(free, 7))).sum(0)
    loud = np.flatnonzero(power > power.max() * 1e-4)
    return max(0, loud[0] - _LEAD_FRAMES), min(len(power), loud[-1] + 1 + _TAIL_FRAMES)


def _stft(signal: FloatArray, frames: int) -> NDArray[np.complex128]:
    padded = np.pad(signal, _SIZE // 2, mode="reflect")
    rows = np.lib.stride_tricks.sliding_window_view(padded, _SIZE)[::_HOP][:frames]
    return np.fft.rfft(rows * (_WINDOW / (_SIZE / 4)), axis=1).T


def _istft(spectrum: NDArray[np.complex128]) -> FloatArray:
    # hibari's spectra are in units of its own 1200-point transform.
    rows = np.fft.irfft(spectrum.T, _SIZE, axis=1) * _WINDOW * (_SIZE / 1200)
    count = len(rows)
    total = np.zeros(_SIZE + _HOP * (count - 1))
    weight = np.zeros_like(total)
    for index in range(count):
        part = slice(index * _HOP, index * _HOP + _SIZE)
        total[part] += rows[index]
        weight[part] += _WINDOW**2
    audio = total / np.maximum(weight, 1e-4)
    return audio[_SIZE // 2 : _SIZE // 2 + count * _HOP].astype(np.float32)
