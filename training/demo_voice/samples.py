"""What the finished voice sounds like: sample files, and a spectrogram beside the teacher's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge_runtime.audio.wav import write_wav
from edge_runtime.speech import SpeechOptions
from edge_runtime.voice import Voice
from training.demo_voice.corpus import Corpus

COUNT = 10
_RATE = 16000
_WINDOW, _HOP = 512, 80


def write_samples(bundle: Path, corpus: Corpus, folder: Path, seed: int = 1) -> list[str]:
    """Write ``00.wav`` to ``09.wav``, ``texts.txt`` and ``spectrogram.png``; needs matplotlib.

    Args:
        bundle: What speaks.
        corpus: Held-out sentences as the teacher says them; every n-th is spoken.
        folder: Made if it is not there.
        seed: Of every sentence.

    Returns:
        The sentences.
    """
    folder.mkdir(parents=True, exist_ok=True)
    voice = Voice.load(bundle)
    chosen = [index * len(corpus.texts) // COUNT for index in range(COUNT)]
    for number, index in enumerate(chosen):
        speech = voice.say(corpus.texts[index], options=SpeechOptions(seed=seed))
        write_wav(folder / f"{number:02d}.wav", speech.audio, speech.sample_rate)
        if number == 0:
            _draw(corpus.texts[index], corpus.utterance(index), speech.audio, folder)
    texts = [corpus.texts[index] for index in chosen]
    (folder / "texts.txt").write_text("\n".join(texts) + "\n", encoding="utf-8", newline="\n")
    return texts


def _draw(
    text: str, teacher: NDArray[np.float32], voice: NDArray[np.float32], folder: Path
) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 6), layout="constrained")
    figure.suptitle(text)
    for axes, (name, audio) in zip(
        figure.subplots(2, 1, sharex=True), (("teacher", teacher), ("voice", voice)), strict=True
    ):
        frames = np.lib.stride_tricks.sliding_window_view(audio, _WINDOW)[::_HOP]
        size = np.abs(np.fft.rfft(frames * np.hanning(_WINDOW), axis=1)).T
        axes.imshow(
            20 * np.log10(size + 1e-3), origin="lower", aspect="auto", cmap="magma", vmin=-45,
            vmax=30, extent=(0.0, len(audio) / _RATE, 0.0, _RATE / 2000),
        )  # fmt: skip
        axes.set_title(name)
        axes.set_ylabel("kHz")
    axes.set_xlabel("s")
    figure.savefig(folder / "spectrogram.png", dpi=90)
