"""Trains the wave decoder against the fixed latent space; resumable, one process, one thread."""

from __future__ import annotations

import json
import math
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from training.demo_voice.latent_space import DELAY, LatentSpace
from training.demo_voice.spectral_loss import SpectralLoss, SpectralTerms
from training.demo_voice.teacher import FRAME
from training.demo_voice.wave_decoder import DecoderSizes, WaveDecoder


@dataclass(frozen=True)
class CodecPlan:
    """How the decoder is trained.

    Attributes:
        steps: Steps over which the learning rate falls; training goes on at its floor.
        batch, frames: Crops per step and latent frames per crop.
        rate: Highest learning rate.
        wave: Weight of the phase-exact term; ``wave_end`` at the last step.
    """

    steps: int = 3000
    batch: int = 16
    frames: int = 32
    rate: float = 2e-3
    wave: float = 1.0
    wave_end: float = 0.5
    average: float = 0.999
    clip: float = 2.0
    seed: int = 1

    def rate_at(self, step: int) -> float:
        """Learning rate."""
        done = min(1.0, step / self.steps)
        fall = 0.02 + 0.98 * (0.5 + 0.5 * math.cos(math.pi * done))
        return self.rate * min(1.0, (step + 1) / 100) * fall


class CodecTraining:
    """Decoder, its average, optimizer and step count, in ``folder/codec.pt``."""

    def __init__(
        self, folder: Path, audio: Tensor, space: LatentSpace, plan: CodecPlan, sizes: DecoderSizes
    ) -> None:
        torch.manual_seed(plan.seed)
        self.folder, self.plan, self.audio = folder, plan, audio
        self.latents = space.encode(audio)
        self.model = WaveDecoder(sizes)
        self.average = WaveDecoder(sizes)
        self.average.load_state_dict(self.model.state_dict())
        self.loss = SpectralLoss()
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=plan.rate, betas=(0.9, 0.98), weight_decay=1e-4
        )
        self.step = 0
        self._path = folder / "codec.pt"
        if self._path.exists():
            saved = torch.load(self._path, weights_only=True)
            self.model.load_state_dict(saved["model"])
            self.average.load_state_dict(saved["average"])
            self.optimizer.load_state_dict(saved["optimizer"])
            self.step = saved["step"]

    def save(self) -> None:
        """Write the state; a crash leaves the previous one."""
        part = self._path.with_suffix(".part")
        torch.save(
            {
                "model": self.model.state_dict(),
                "average": self.average.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "step": self.step,
                "sizes": asdict(self.model.sizes),
            },
            part,
        )
        os.replace(part, self._path)

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Latents [B, frames, D] and the delayed audio [B, samples] of step ``step``."""
        plan = self.plan
        source = np.random.default_rng((plan.seed, step))
        starts = source.integers(1, len(self.latents) - plan.frames, plan.batch)
        latents = torch.stack([self.latents[s : s + plan.frames] for s in starts])
        begin = starts * FRAME - DELAY
        audio = torch.stack([self.audio[b : b + plan.frames * FRAME] for b in begin])
        return latents, audio

    def train_step(self) -> dict[str, float]:
        """One step; its losses."""
        plan = self.plan
        rate = plan.rate_at(self.step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        latents, audio = self.batch(self.step)
        made = self.model(latents)
        # A crop's first frame lacks the past that the signal had.
        terms: SpectralTerms = self.loss(made[:, FRAME:], audio[:, FRAME:])
        done = min(1.0, self.step / plan.steps)
        wave = plan.wave + (plan.wave_end - plan.wave) * done
        total = terms.log + terms.mel + terms.convergence + wave * terms.complex
        self.optimizer.zero_grad(set_to_none=True)
        total.backward()
        size = torch.nn.utils.clip_grad_norm_(self.model.parameters(), plan.clip)
        self.optimizer.step()
        self.step += 1
        keep = min(plan.average, (self.step + 1) / (self.step + 10))
        with torch.no_grad():
            for slow, fast in zip(self.average.parameters(), self.model.parameters(), strict=True):
                slow.lerp_(fast, 1 - keep)
        return {name: getattr(terms, name).item() for name in vars(terms)} | {"norm": size.item()}

    def run(self, until: int, every: int = 50, save_every: int = 250) -> None:
        """Train up to step ``until``; a line of means every ``every`` steps goes to codec.jsonl."""
        start, sums = time.time(), dict[str, float]()
        cpu = time.process_time()
        while self.step < until:
            for name, value in self.train_step().items():
                sums[name] = sums.get(name, 0.0) + value
            if self.step % every == 0:
                line = {name: round(value / every, 4) for name, value in sums.items()}
                line |= {
                    "step": self.step,
                    "seconds": round(time.time() - start),
                    "cpu": round(time.process_time() - cpu),
                }
                with (self.folder / "codec.jsonl").open("a", encoding="utf-8") as log:
                    log.write(json.dumps(line) + "\n")
                sums = {}
            if self.step % save_every == 0:
                self.save()
        self.save()
