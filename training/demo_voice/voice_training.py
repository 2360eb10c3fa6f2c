"""Trains language models and flow on the fixed latents; resumable, one process.

What makes it fast: beside the flow's own loss, which is noisy, three heads that exist in training
only tell the language model what the next patch is. They predict the patch itself, its phonemes,
and, as one attention head of two layers, which words are being said.
"""

from __future__ import annotations

import json
import math
import os
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from export.voxcpm2.config import VoxCpm2Config
from training.demo_voice.voice_data import Said, VoiceBatch, VoiceData
from training.demo_voice.voice_net import VoiceNet

PHONEMES = 192
WATCHED = (1, 3)


@dataclass(frozen=True)
class VoicePlan:
    """How the voice is trained.

    Attributes:
        steps: Steps over which the learning rate falls; training goes on at its floor.
        second: First and last step of a second fall, and the rate it starts from.
        batch: Sentences per step.
        share: Part of the audio rows that the flow is trained on, in each step.
        past_noise: Highest standard deviation of the noise on the past; free running is not exact.
        drop: How often the flow gets no condition, for guidance.
        bfloat16: Matrix products in bfloat16, 1.6 times as fast where the CPU has them.
    """

    steps: int = 8000
    rate: float = 1e-3
    second: tuple[int, int, float] = (16000, 22000, 6e-4)
    batch: int = 24
    share: float = 0.5
    past_noise: float = 0.4
    drop: float = 0.1
    average: float = 0.999
    clip: float = 1.0
    seed: int = 2
    bfloat16: bool = True
    patch_weight: float = 1.0
    phoneme_weight: float = 0.5
    guide_weight: float = 0.3
    stop_weight: float = 0.2

    def rate_at(self, step: int) -> float:
        """Learning rate."""
        first, last, rate = 0, self.steps, self.rate
        if step >= self.second[0]:
            first, last, rate = self.second
        done = min(1.0, (step - first) / (last - first))
        fall = 0.02 + 0.98 * (0.5 + 0.5 * math.cos(math.pi * done))
        return rate * min(1.0, (step - first + 1) / 300) * fall


class VoiceModel(nn.Module):
    """The net and the heads that only training needs."""

    def __init__(self, config: VoxCpm2Config) -> None:
        super().__init__()
        self.net = VoiceNet(config)
        flow, hidden = config.flow.hidden, config.lm_config.hidden_size
        self.patch_head = nn.Linear(2 * flow, config.patch_size * config.feat_dim)
        self.phoneme_head = nn.Linear(hidden, config.patch_size * PHONEMES)
        for index in WATCHED:
            self.net.base_lm.layers[index].self_attn.watched = True

    def losses(
        self, batch: VoiceBatch, plan: VoicePlan, generator: torch.Generator, noisy: bool = True
    ) -> dict[str, Tensor]:
        """Mean losses of a batch."""

        def normal(like: Tensor) -> Tensor:
            return torch.randn(like.shape, generator=generator)

        scored = batch.scored
        past, before = batch.patches, batch.before
        if noisy:
            level = torch.rand(len(batch.tokens), 1, 1, generator=generator) * plan.past_noise
            level = level[batch.sentence]
            past = past + level * normal(past)
            before = before + level[scored] * normal(before)
        rows = self.net.rows(batch.tokens, batch.is_audio, past)
        mu, semantic, wanted = rows.mu[scored], rows.semantic[scored], batch.patches[scored]
        phonemes = self.phoneme_head(semantic).view(-1, PHONEMES)
        return {
            "flow": self._flow(wanted, mu, before, plan, generator, noisy),
            "patch": functional.mse_loss(self.patch_head(mu).view_as(wanted), wanted),
            "phoneme": functional.cross_entropy(phonemes, batch.phonemes.reshape(-1)),
            "guide": self._guide(batch),
            "stop": functional.cross_entropy(rows.stop[scored], batch.stop),
        }

    def _flow(
        self,
        patches: Tensor,
        mu: Tensor,
        before: Tensor,
        plan: VoicePlan,
        generator: torch.Generator,
        noisy: bool,
    ) -> Tensor:
        if noisy:
            count = math.ceil(len(patches) * plan.share)
            order = torch.randperm(len(patches), generator=generator)[:count]
            mu, patches, before = mu[order], patches[order], before[order]
            mu = mu * (torch.rand(len(order), 1, generator=generator) > plan.drop)
        time_ = torch.sigmoid(torch.randn(len(patches), generator=generator) - 0.4)
        noise = torch.randn(patches.shape, generator=generator)
        at = time_[:, None, None]
        made = self.net.feat_decoder.estimator((1 - at) * patches + at * noise, mu, time_, before)
        return functional.mse_loss(made, noise - patches)

    def _guide(self, batch: VoiceBatch) -> Tensor:
        total = batch.before.new_zeros(())
        ahead = batch.is_audio[:, 1:]
        known = batch.spoken.any(1)
        target = batch.spoken[known].float()
        target = target / target.sum(1, keepdim=True)
        for index in WATCHED:
            scores = self.net.base_lm.layers[index].self_attn.scores
            scores = scores[:, :-1][ahead][batch.scored][known].float()
            total = total - (target * torch.log_softmax(scores, -1)).sum(1).mean()
        return total / len(WATCHED)


class VoiceTraining:
    """Model, its average, optimizer and step count, in ``folder/voice.pt``."""

    def __init__(
        self, folder: Path, data: VoiceData, held_out: VoiceData, config: VoxCpm2Config,
        plan: VoicePlan,
    ) -> None:  # fmt: skip
        torch.manual_seed(plan.seed)
        self.folder, self.data, self.held_out, self.plan = folder, data, held_out, plan
        self.model, self.average = VoiceModel(config), VoiceModel(config)
        self.average.load_state_dict(self.model.state_dict())
        decayed = [p for p in self.model.parameters() if p.dim() > 1]
        others = [p for p in self.model.parameters() if p.dim() <= 1]
        self.optimizer = torch.optim.AdamW(
            [{"params": decayed, "weight_decay": 0.02}, {"params": others, "weight_decay": 0.0}],
            lr=plan.rate, betas=(0.9, 0.98),
        )  # fmt: skip
        self.step = 0
        self._path = folder / "voice.pt"
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
            },
            part,
        )
        os.replace(part, self._path)

    def train_step(self) -> dict[str, float]:
        """One step; its losses."""
        plan = self.plan
        rate = plan.rate_at(self.step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        generator = torch.Generator().manual_seed(plan.seed * 1_000_003 + self.step)
        batch = self.data.batch(self.step, plan.batch, plan.seed)
        with torch.autocast("cpu", torch.bfloat16, enabled=plan.bfloat16):
            losses = self.model.losses(batch, plan, generator)
        self.optimizer.zero_grad(set_to_none=True)
        weighted(losses, plan).backward()
        size = nn.utils.clip_grad_norm_(self.model.parameters(), plan.clip)
        self.optimizer.step()
        self.step += 1
        keep = min(plan.average, (self.step + 1) / (self.step + 10))
        with torch.no_grad():
            slow: list[Tensor] = list(self.average.parameters())
            fast: list[Tensor] = list(self.model.parameters())
            torch._foreach_lerp_(slow, fast, 1 - keep)
        return {name: value.item() for name, value in losses.items()} | {"norm": size.item()}

    @torch.no_grad()
    def gate(self, count: int = 32) -> dict[str, float]:
        """Held-out losses of the average with the right text, and the flow's with a wrong one."""
        plan, indices = self.plan, list(range(min(count, len(self.held_out.patches))))
        swapped = indices[5:] + indices[:5]
        result: dict[str, float] = {}
        for name, texts in (("", indices), ("wrong_", swapped)):
            generator = torch.Generator().manual_seed(0)
            batch = self.held_out.gather(
                [Said((index,), texts=(text,)) for index, text in zip(indices, texts, strict=True)]
            )
            losses = self.average.losses(batch, plan, generator, noisy=False)
            result |= {f"held_{name}{key}": round(v.item(), 4) for key, v in losses.items()}
        return result

    def run(self, until: int, every: int = 50, save_every: int = 250) -> None:
        """Train up to step ``until``; means and gate figures go to voice.jsonl."""
        start, cpu, sums = time.time(), time.process_time(), dict[str, float]()
        while self.step < until:
            for name, value in self.train_step().items():
                sums[name] = sums.get(name, 0.0) + value
            if self.step % every == 0:
                line: dict[str, float] = {k: round(v / every, 4) for k, v in sums.items()}
                line |= {
                    "step": self.step,
                    "seconds": round(time.time() - start),
                    "cpu": round(time.process_time() - cpu),
                }
                if self.step % save_every == 0:
                    line |= self.gate()
                with (self.folder / "voice.jsonl").open("a", encoding="utf-8") as log:
                    log.write(json.dumps(line) + "\n")
                sums = {}
            if self.step % save_every == 0:
                self.save()
        self.save()


def weighted(losses: dict[str, Tensor], plan: VoicePlan) -> Tensor:
    """The sum that is minimised."""
    return (
        losses["flow"]
        + plan.patch_weight * losses["patch"]
        + plan.phoneme_weight * losses["phoneme"]
        + plan.guide_weight * losses["guide"]
        + plan.stop_weight * losses["stop"]
    )
