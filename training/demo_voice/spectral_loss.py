"""What the decoder is trained to minimise: log spectra at several resolutions, and the waveform."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from training.demo_voice.latent_space import mel_filters

_FLOOR = 2e-3
_RESOLUTIONS = ((1024, 256, 80), (512, 128, 64), (256, 64, 40), (128, 32, 0))


@dataclass(frozen=True)
class SpectralTerms:
    """Mean values of one batch, each a scalar."""

    log: Tensor
    mel: Tensor
    convergence: Tensor
    complex: Tensor


class SpectralLoss(nn.Module):
    """Distances between two waveforms [batch, samples]."""

    def __init__(self) -> None:
        super().__init__()
        for size, _, bands in _RESOLUTIONS:
            self.register_buffer(f"window_{size}", torch.hann_window(size), persistent=False)
            if bands:
                filters = mel_filters(size, bands)
                self.register_buffer(f"mel_{size}", filters, persistent=False)

    def forward(self, made: Tensor, wanted: Tensor) -> SpectralTerms:
        zero = made.new_zeros(())
        log, mel, convergence, exact = zero, zero, zero, zero
        for size, hop, bands in _RESOLUTIONS:
            a, b = (self._spectrum(signal, size, hop) for signal in (made, wanted))
            first, second = (torch.view_as_real(s).square().sum(-1) for s in (a, b))
            high, low = (torch.sqrt(power + 1e-9) for power in (first, second))
            log = log + (torch.log(high + _FLOOR) - torch.log(low + _FLOOR)).abs().mean()
            convergence = convergence + (high - low).norm() / low.norm()
            if size == 512:
                exact = torch.view_as_real(a - b).abs().mean() / torch.view_as_real(b).abs().mean()
            if bands:
                filters = self.get_buffer(f"mel_{size}")
                bands_a, bands_b = (p.transpose(1, 2) @ filters for p in (first, second))
                mel = (
                    mel
                    + 0.5
                    * (torch.log(bands_a + _FLOOR**2) - torch.log(bands_b + _FLOOR**2)).abs().mean()
                )
        count = len(_RESOLUTIONS)
        return SpectralTerms(log / count, mel / (count - 1), convergence / count, exact)

    def _spectrum(self, signal: Tensor, size: int, hop: int) -> Tensor:
        window = self.get_buffer(f"window_{size}")
        raw = torch.stft(signal, size, hop, window=window, center=False, return_complex=True)
        spectrum: Tensor = raw / (size**0.5)
        return spectrum
