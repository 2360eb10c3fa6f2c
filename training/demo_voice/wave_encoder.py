"""AudioVAE v2's encoder, trained to tell the fixed latents from audio, and its official tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from training.demo_voice.wave_decoder import DILATIONS, KERNEL, Unit, normalized, past, snake

_MU_KERNEL = 3


class Halving(nn.Module):
    """Three residual units, Snake, and a strided convolution to twice the channels."""

    def __init__(self, width: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.units: Any = nn.Sequential(*(Unit(width, d) for d in DILATIONS))
        self.alpha = nn.Parameter(torch.ones(width))
        self.now = nn.Linear(width * stride, 2 * width)
        self.before = nn.Linear(width * stride, 2 * width, bias=False)

    def forward(self, value: Tensor) -> Tensor:
        value = snake(self.units(value), self.alpha)
        batch, count, width = value.shape
        value = value.reshape(batch, count // self.stride, width * self.stride)
        result: Tensor = self.now(value) + past(self.before(value), 1)[:, :-1]
        return result


class WaveEncoder(nn.Module):
    """Audio [batch, samples] to latents [batch, frames, D]; samples are whole frames.

    Args:
        width: encoder_dim of the official config.
        strides: encoder_rates.
        latent: latent_dim.
    """

    def __init__(
        self, width: int = 16, strides: tuple[int, ...] = (2, 5, 8, 8), latent: int = 32
    ) -> None:
        super().__init__()
        self.first = nn.Linear(KERNEL, width)
        self.stages: Any = nn.ModuleList(
            Halving(width * 2**index, stride) for index, stride in enumerate(strides)
        )
        self.mu = nn.Linear(_MU_KERNEL * width * 2 ** len(strides), latent)

    def forward(self, audio: Tensor) -> Tensor:
        value = self.first(_windows(audio[..., None], KERNEL))
        for stage in self.stages:
            value = stage(value)
        result: Tensor = self.mu(_windows(value, _MU_KERNEL))
        return result

    def official_tensors(self) -> dict[str, Tensor]:
        """Tensors of AudioVAE v2's encoder; the log-variance, which nothing reads, is constant."""
        tensors: dict[str, Tensor] = {}

        def convolution(name: str, weight: Tensor, bias: Tensor) -> None:
            tensors.update({f"{name}.{k}": v for k, v in normalized(weight).items()})
            tensors[f"{name}.bias"] = bias

        convolution("encoder.block.0", self.first.weight[:, None], self.first.bias)
        for index, stage in enumerate(self.stages, start=1):
            block = f"encoder.block.{index}.block"
            for number, unit in enumerate(stage.units):
                name = f"{block}.{number}.block"
                tensors[f"{name}.0.alpha"] = unit.alpha0.view(1, -1, 1)
                convolution(f"{name}.1", unit.mix.weight.T[:, None], unit.mix.bias)
                tensors[f"{name}.2.alpha"] = unit.alpha1.view(1, -1, 1)
                convolution(f"{name}.3", unit.point.weight[..., None], unit.point.bias)
            tensors[f"{block}.3.alpha"] = stage.alpha.view(1, -1, 1)
            outputs = stage.now.weight.shape[0]
            taps = [
                half.weight.view(outputs, stage.stride, -1).transpose(1, 2)
                for half in (stage.before, stage.now)
            ]
            convolution(f"{block}.4", torch.cat(taps, dim=-1), stage.now.bias)
        latent = self.mu.weight.shape[0]
        weight = self.mu.weight.view(latent, _MU_KERNEL, -1).transpose(1, 2)
        convolution("encoder.fc_mu", weight, self.mu.bias)
        convolution(
            "encoder.fc_logvar", torch.zeros_like(weight), torch.full_like(self.mu.bias, -8.0)
        )
        return {name: value.detach().clone().contiguous() for name, value in tensors.items()}


def _windows(value: Tensor, kernel: int) -> Tensor:
    """The last ``kernel`` frames of each frame, oldest first: [B, T, C] to [B, T, kernel * C]."""
    padded = past(value, kernel - 1)
    count = value.shape[1]
    return torch.cat([padded[:, at : at + count] for at in range(kernel)], dim=-1)
