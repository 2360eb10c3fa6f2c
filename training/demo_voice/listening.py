"""Gate 1: what a recogniser hears in the codec's reconstructions, and in the teacher itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from boardvoice.evaluation.checks import log_spectral_distance
from boardvoice.evaluation.recogniser import RATE, Recogniser
from boardvoice.evaluation.words import normalized_words, word_errors
from edge_runtime.audio.wav import write_wav
from training.demo_voice.corpus import Corpus


def reconstruct(state: Path, corpus: Corpus, folder: Path, count: int) -> dict[str, float]:
    """Write ``folder/teacher`` and ``folder/codec`` of the first ``count`` utterances.

    The codec's input are the fixed latents; its output is moved forward by its delay.

    Returns:
        The step that the decoder was trained to, and the mean log-spectral distance in dB.
    """
    import torch

    from training.demo_voice.checkpoint import load_decoder
    from training.demo_voice.latent_space import DELAY, LatentSpace
    from training.demo_voice.teacher import FRAME

    decoder, step = load_decoder(state)
    space = LatentSpace.load(state / "space.npz")
    distances = []
    for name in ("teacher", "codec"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for index in range(min(count, len(corpus.texts))):
        wanted = corpus.utterance(index)
        padded = np.pad(wanted, (0, FRAME))
        with torch.no_grad():
            made = decoder(space.encode(torch.from_numpy(padded))[None])[0].numpy()
        made = made[DELAY : DELAY + len(wanted)]
        distances.append(log_spectral_distance(made, wanted))
        write_wav(folder / "teacher" / f"{index:03d}.wav", wanted, RATE)
        write_wav(folder / "codec" / f"{index:03d}.wav", made, RATE)
    return {"step": step, "distance_db": round(float(np.mean(distances)), 2)}


def hear(folder: Path, texts: list[str]) -> dict[str, float]:
    """Word error rate in percent of every folder of wavs in ``folder``, numbered as ``texts``."""
    import soundfile

    recogniser = Recogniser()
    rates = {}
    for part in sorted(path for path in folder.iterdir() if path.is_dir()):
        errors = words = 0
        for path in sorted(part.glob("*.wav")):
            audio, _ = soundfile.read(path, dtype="float32")
            wanted = normalized_words(texts[int(path.stem)])
            errors += word_errors(wanted, normalized_words(recogniser.hear(audio)))
            words += len(wanted)
        rates[part.name] = round(100 * errors / max(words, 1), 2)
    return rates
