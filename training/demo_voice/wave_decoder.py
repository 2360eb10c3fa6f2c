"""AudioVAE v2's decoder in a form that trains fast on a CPU, and its official tensors.

Three liberties, each exact: frames come last-but-one ([batch, time, channels]), so pointwise and
transposed convolutions are matrix products; weight normalization is resolved; and at the full rate
the network is linear (pointwise layers of its residual units at zero, Snake's alpha at zero), so
its last transposed convolution and the last convolution are one synthesis filter of 26 taps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

KERNEL = 7
DILATIONS = (1, 3, 9)


@dataclass(frozen=True)
class DecoderSizes:
    """Sizes of the official config: latent_dim, decoder_dim, decoder_rates."""

    latent: int = 32
    width: int = 512
    rates: tuple[int, ...] = (4, 4, 4, 10)


def snake(value: Tensor, alpha: Tensor) -> Tensor:
    """x + sin(alpha x)^2 / alpha."""
    return value + torch.sin(alpha * value).square() / (alpha + 1e-9)


def past(value: Tensor, frames: int) -> Tensor:
    """``frames`` zeros in front of [batch, time, channels]."""
    return functional.pad(value, (0, 0, frames, 0))


class Depthwise(nn.Module):
    """Causal depthwise convolution over [batch, time, channels], unrolled."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.dilation = dilation
        bound = KERNEL**-0.5
        self.weight = nn.Parameter(torch.empty(KERNEL, width).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, value: Tensor) -> Tensor:
        count = value.shape[1]
        padded = past(value, (KERNEL - 1) * self.dilation)
        total = self.bias + self.weight[0] * padded[:, :count]
        for tap in range(1, KERNEL):
            start = tap * self.dilation
            total = total + self.weight[tap] * padded[:, start : start + count]
        return total


class Unit(nn.Module):
    """Snake, depthwise, snake, pointwise, plus the input."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.alpha0 = nn.Parameter(torch.ones(width))
        self.mix = Depthwise(width, dilation)
        self.alpha1 = nn.Parameter(torch.ones(width))
        self.point = nn.Linear(width, width)
        with torch.no_grad():
            self.point.weight.mul_(0.3)

    def forward(self, value: Tensor) -> Tensor:
        inner = self.mix(snake(value, self.alpha0))
        result: Tensor = value + self.point(snake(inner, self.alpha1))
        return result


class Stage(nn.Module):
    """Snake, transposed convolution, three residual units."""

    def __init__(self, width: int, rate: int) -> None:
        super().__init__()
        self.rate = rate
        self.alpha = nn.Parameter(torch.ones(width))
        self.now = nn.Linear(width, width // 2 * rate, bias=False)
        self.before = nn.Linear(width, width // 2 * rate, bias=False)
        self.bias = nn.Parameter(torch.zeros(width // 2))
        self.units: Any = nn.Sequential(*(Unit(width // 2, d) for d in DILATIONS))

    def forward(self, value: Tensor) -> Tensor:
        batch, count, width = value.shape
        value = snake(value, self.alpha)
        raised = self.now(value) + past(self.before(value), 1)[:, :count]
        raised = raised.reshape(batch, count * self.rate, width // 2) + self.bias
        result: Tensor = self.units(raised)
        return result


class WaveDecoder(nn.Module):
    """Latents [batch, frames, D] to audio [batch, samples]."""

    def __init__(self, sizes: DecoderSizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.mix = Depthwise(sizes.latent, 1)
        self.rise = nn.Linear(sizes.latent, sizes.width)
        *inner, self.last = sizes.rates
        widths = [sizes.width // 2**i for i in range(len(sizes.rates))]
        self.stages: Any = nn.ModuleList(
            Stage(w, rate) for w, rate in zip(widths, inner, strict=False)
        )
        self.alpha = nn.Parameter(torch.ones(widths[-1]))
        self.taps = nn.Parameter(torch.randn(widths[-1], 2 * self.last + KERNEL - 1) * 0.02)
        self.bias = nn.Parameter(torch.zeros(1))

    def trunk(self, latents: Tensor) -> Tensor:
        """What the synthesis filter is applied to, [batch, time, channels]."""
        value = self.rise(self.mix(latents))
        for stage in self.stages:
            value = stage(value)
        return snake(value, self.alpha)

    def forward(self, latents: Tensor) -> Tensor:
        value = self.trunk(latents)
        batch, count, _ = value.shape
        reach = -(-self.taps.shape[1] // self.last)
        taps = functional.pad(self.taps, (0, reach * self.last - self.taps.shape[1]))
        audio = value @ taps[:, : self.last]
        for step in range(1, reach):
            part = value @ taps[:, step * self.last : (step + 1) * self.last]
            audio = audio + past(part, step)[:, :count]
        return torch.tanh(audio.reshape(batch, -1) + self.bias)

    def official_tensors(self) -> dict[str, Tensor]:
        """Tensors of AudioVAE v2's decoder (depthwise, no rate conditions), weight-normalized."""
        rates, width = self.sizes.rates, self.sizes.width
        tensors: dict[str, Tensor] = {}

        def convolution(name: str, weight: Tensor, bias: Tensor) -> None:
            tensors.update({f"{name}.{k}": v for k, v in normalized(weight).items()})
            tensors[f"{name}.bias"] = bias

        def alpha(name: str, value: Tensor) -> None:
            tensors[f"{name}.alpha"] = value.view(1, -1, 1)

        convolution("decoder.model.0", self.mix.weight.T[:, None], self.mix.bias)
        convolution("decoder.model.1", self.rise.weight[..., None], self.rise.bias)
        for index, stage in enumerate(self.stages):
            block, outputs = f"decoder.model.{index + 2}.block", width // 2 ** (index + 1)
            alpha(f"{block}.0", stage.alpha)
            taps = [
                half.weight.view(rates[index], outputs, -1).permute(2, 1, 0)
                for half in (stage.now, stage.before)
            ]
            convolution(f"{block}.1", torch.cat(taps, dim=-1), stage.bias)
            for number, unit in enumerate(stage.units):
                name = f"{block}.{number + 2}.block"
                alpha(f"{name}.0", unit.alpha0)
                convolution(f"{name}.1", unit.mix.weight.T[:, None], unit.mix.bias)
                alpha(f"{name}.2", unit.alpha1)
                convolution(f"{name}.3", unit.point.weight[..., None], unit.point.bias)
        count = len(rates)
        inputs, outputs = width // 2 ** (count - 1), width // 2**count
        block = f"decoder.model.{count + 1}.block"
        alpha(f"{block}.0", self.alpha)
        # The 26 taps: the first 20 go through channel 0 at once, the last 6 through channel 1,
        # which the last convolution delays by 6 samples.
        kernel = self.taps.new_zeros(inputs, outputs, 2 * self.last)
        kernel[:, 0] = self.taps[:, : 2 * self.last]
        kernel[:, 1, 2 * self.last - KERNEL + 1 :] = self.taps[:, 2 * self.last :]
        nothing = self.taps.new_zeros(outputs)
        convolution(f"{block}.1", kernel, nothing)
        for number in range(len(DILATIONS)):
            name = f"{block}.{number + 2}.block"
            alpha(f"{name}.0", nothing)
            convolution(f"{name}.1", self.taps.new_zeros(outputs, 1, KERNEL), nothing)
            alpha(f"{name}.2", nothing)
            convolution(f"{name}.3", self.taps.new_zeros(outputs, outputs, 1), nothing)
        alpha(f"decoder.model.{count + 2}", nothing)
        mix = self.taps.new_zeros(1, outputs, KERNEL)
        mix[0, 0, -1] = 1
        mix[0, 1, 0] = 1
        convolution(f"decoder.model.{count + 3}", mix, self.bias)
        return {name: value.detach().clone().contiguous() for name, value in tensors.items()}


def normalized(weight: Tensor) -> dict[str, Tensor]:
    """Weight norm's pair of a kernel; kernels of zeros get a direction, so that none is 0 / 0."""
    axes = tuple(range(1, weight.dim()))
    norm = weight.square().sum(axes, keepdim=True).sqrt()
    return {"weight_g": norm, "weight_v": torch.where(norm > 0, weight, torch.ones_like(weight))}
