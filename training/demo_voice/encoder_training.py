"""Trains the wave encoder to give the fixed latents; resumable, one process."""

from __future__ import annotations

import json
import math
import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from training.demo_voice.latent_space import LatentSpace
from training.demo_voice.teacher import FRAME
from training.demo_voice.wave_encoder import WaveEncoder


@dataclass(frozen=True)
class EncoderPlan:
    """How the encoder is trained; fields as the decoder's."""

    steps: int = 2000
    batch: int = 12
    frames: int = 20
    rate: float = 2e-3
    seed: int = 3


class EncoderTraining:
    """Encoder, optimizer and step count, in ``folder/encoder.pt``."""

    def __init__(self, folder: Path, audio: Tensor, space: LatentSpace, plan: EncoderPlan) -> None:
        torch.manual_seed(plan.seed)
        self.folder, self.plan, self.audio = folder, plan, audio
        self.latents = space.encode(audio)
        self.model = WaveEncoder(latent=self.latents.shape[1])
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=plan.rate, betas=(0.9, 0.98), weight_decay=1e-4
        )
        self.step = 0
        self._path = folder / "encoder.pt"
        if self._path.exists():
            saved = torch.load(self._path, weights_only=True)
            self.model.load_state_dict(saved["model"])
            self.optimizer.load_state_dict(saved["optimizer"])
            self.step = saved["step"]

    def save(self) -> None:
        """Write the state; a crash leaves the previous one."""
        part = self._path.with_suffix(".part")
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
        }
        torch.save(state, part)
        os.replace(part, self._path)

    def train_step(self) -> float:
        """One step; its mean squared error."""
        plan = self.plan
        done = min(1.0, self.step / plan.steps)
        rate = plan.rate * min(1.0, (self.step + 1) / 50) * (0.52 + 0.48 * math.cos(math.pi * done))
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        source = np.random.default_rng((plan.seed, self.step))
        starts = source.integers(0, len(self.latents) - plan.frames, plan.batch)
        wanted = torch.stack([self.latents[s : s + plan.frames] for s in starts])
        audio = torch.stack([self.audio[s * FRAME : (s + plan.frames) * FRAME] for s in starts])
        # A crop's first frames lack the past that the spectra saw.
        loss = functional.mse_loss(self.model(audio)[:, 2:], wanted[:, 2:])
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.step += 1
        return loss.item()

    def run(self, until: int, every: int = 50) -> None:
        """Train up to step ``until``; means go to encoder.jsonl."""
        cpu, total = time.process_time(), 0.0
        while self.step < until:
            total += self.train_step()
            if self.step % every == 0:
                line = {
                    "error": round(total / every, 5),
                    "step": self.step,
                    "cpu": round(time.process_time() - cpu),
                }
                with (self.folder / "encoder.jsonl").open("a", encoding="utf-8") as log:
                    log.write(json.dumps(line) + "\n")
                total = 0.0
                self.save()
        self.save()
