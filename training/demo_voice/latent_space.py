"""The codec's latent space: principal components of log-mel patches, fixed before any training.

A latent frame describes 40 ms by 4 short-time spectra, which end with the frame, so that a causal
encoder can compute them. The decoder's output lies ``DELAY`` samples behind for the same reason.
Having the space before the networks lets the voice, the decoder and the encoder be trained
independently of each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from training.demo_voice.teacher import FRAME, RATE

WINDOW, HOP, FFT, MELS = 512, 160, 1024, 64
PER_FRAME = FRAME // HOP
# The spectra's common centre lies 144 samples into the frame, the frame's own is at 320.
DELAY = 176
_FLOOR = 1e-6
_CHUNK = 8192
# Between principal components as they are (0) and whitened ones (1): a flow model spends its
# effort on what is large, and the small components matter less.
_WHITENING = 0.6
_LARGEST = 1.8


def mel_filters(size: int, bands: int, low: float = 40.0) -> Tensor:
    """Triangular filters of unit sum, [size / 2 + 1, bands]."""
    hertz = torch.linspace(0, RATE / 2, size // 2 + 1)

    def mel(value: float) -> float:
        return 2595 * math.log10(1 + value / 700)

    edges = 700 * (10 ** (torch.linspace(mel(low), mel(RATE / 2), bands + 2) / 2595) - 1)
    rising = (hertz[:, None] - edges[None, :-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[None, 2:] - hertz[:, None]) / (edges[2:] - edges[1:-1])
    filters = torch.clamp(torch.min(rising, falling), min=0)
    return filters / filters.sum(0).clamp(min=1e-6)


def log_mel_frames(audio: Tensor) -> Tensor:
    """Log-mel patches in dB, [frames, PER_FRAME * MELS], of audio [samples]; causal."""
    padded = functional.pad(audio, (WINDOW - HOP, 0))
    window, filters = torch.hann_window(WINDOW), mel_filters(FFT, MELS)
    bands = []
    # In parts: an hour of spectra at once would take gigabytes.
    for rows in padded.unfold(0, WINDOW, HOP).split(_CHUNK):
        power = torch.fft.rfft(rows * window, FFT).abs().pow(2) / (WINDOW * 3 / 8)
        bands.append(power @ filters)
    decibel = 10 * torch.log10(torch.cat(bands) + _FLOOR)
    return decibel[: len(decibel) // PER_FRAME * PER_FRAME].reshape(-1, PER_FRAME * MELS)


@dataclass(frozen=True)
class LatentSpace:
    """An affine map from log-mel patches to latents.

    Attributes:
        mean: [PER_FRAME * MELS], dB.
        basis: [PER_FRAME * MELS, D], orthonormal columns.
        scale: [D]; a latent is the component times this.
    """

    mean: Tensor
    basis: Tensor
    scale: Tensor

    @classmethod
    def fit(cls, audio: Tensor, size: int) -> LatentSpace:
        """Principal components of ``audio`` [samples]."""
        patches = log_mel_frames(audio)
        mean = patches.mean(0)
        _, strength, rows = torch.linalg.svd(patches - mean, full_matrices=False)
        spread = strength[:size] / math.sqrt(len(patches))
        scale = spread.pow(-_WHITENING)
        scale = scale * (_LARGEST / (spread[0] * scale[0]))
        return cls(mean, rows[:size].T.contiguous(), scale)

    def encode(self, audio: Tensor) -> Tensor:
        """Latents [frames, D] of audio [samples]."""
        return self.project(log_mel_frames(audio))

    def project(self, patches: Tensor) -> Tensor:
        """Latents [..., D] of log-mel patches."""
        latents: Tensor = (patches - self.mean) @ self.basis * self.scale
        return latents

    def patches(self, latents: Tensor) -> Tensor:
        """Log-mel patches that latents [..., D] stand for, dB."""
        return (latents / self.scale) @ self.basis.T + self.mean

    def save(self, path: Path) -> None:
        """Write as .npz."""
        np.savez(path, mean=self.mean, basis=self.basis, scale=self.scale)

    @classmethod
    def load(cls, path: Path) -> LatentSpace:
        """Read what ``save`` wrote."""
        with np.load(path) as arrays:
            return cls(*(torch.from_numpy(arrays[name]) for name in ("mean", "basis", "scale")))
