"""VoxCPM2's language models, patch encoder and flow estimator for training on a CPU.

Parameters carry the official names, so a state dict goes into a checkpoint as it is. The forward is
lean: the official one runs encoder and flow on every row of a padded batch, text and padding too;
this one runs them on audio rows, and the flow on as many of those as asked for. Equality with
`VoxCPM2Model` (voxcpm 2.0.3) is a test.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from export.graph.transformer_spec import TransformerSpec
from export.voxcpm2.config import VoxCpm2Config


class Norm(nn.Module):
    """RMS normalization."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, value: Tensor) -> Tensor:
        return functional.rms_norm(value.float(), self.weight.shape, self.weight, self.eps)


class Attention(nn.Module):
    """Grouped-query attention; keeps the first head's scores [B, T, T] when it is watched."""

    def __init__(self, spec: TransformerSpec) -> None:
        super().__init__()
        self.spec = spec
        inner, shared = spec.num_heads * spec.head_size, spec.num_kv_heads * spec.head_size
        self.q_proj = nn.Linear(spec.hidden, inner, bias=False)
        self.k_proj = nn.Linear(spec.hidden, shared, bias=False)
        self.v_proj = nn.Linear(spec.hidden, shared, bias=False)
        self.o_proj = nn.Linear(inner, spec.hidden, bias=False)
        self.watched = False
        self.scores: Tensor | None = None

    def forward(self, value: Tensor, rope: tuple[Tensor, Tensor] | None, causal: bool) -> Tensor:
        spec = self.spec
        batch, rows, _ = value.shape

        def heads(projected: Tensor) -> Tensor:
            return projected.view(batch, rows, -1, spec.head_size).transpose(1, 2)

        query, key, content = (
            heads(layer(value)) for layer in (self.q_proj, self.k_proj, self.v_proj)
        )
        if rope is not None:
            query, key = _rotate(query, rope), _rotate(key, rope)
        group = spec.num_heads // spec.num_kv_heads
        key, content = (
            part.repeat_interleave(group, dim=1) if group > 1 else part for part in (key, content)
        )
        # Rows are few (11 in the flow): torch's fused attention is several times slower backward.
        scores = (query * spec.head_size**-0.5) @ key.transpose(2, 3)
        if causal:
            later = torch.ones(rows, rows, dtype=torch.bool, device=value.device).triu(1)
            scores = scores.masked_fill(later, -1e9)
        self.scores = scores[:, 0] if self.watched else None
        mixed = torch.softmax(scores, dim=-1).to(content.dtype) @ content
        result: Tensor = self.o_proj(mixed.transpose(1, 2).reshape(batch, rows, -1))
        return result


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, spec: TransformerSpec) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(spec.hidden, spec.ffn, bias=False)
        self.up_proj = nn.Linear(spec.hidden, spec.ffn, bias=False)
        self.down_proj = nn.Linear(spec.ffn, spec.hidden, bias=False)

    def forward(self, value: Tensor) -> Tensor:
        result: Tensor = self.down_proj(
            functional.silu(self.gate_proj(value)) * self.up_proj(value)
        )
        return result


class Layer(nn.Module):
    """Attention and feed-forward, each with a norm in front."""

    def __init__(self, spec: TransformerSpec) -> None:
        super().__init__()
        self.self_attn = Attention(spec)
        self.mlp = FeedForward(spec)
        self.input_layernorm = Norm(spec.hidden, spec.eps)
        self.post_attention_layernorm = Norm(spec.hidden, spec.eps)
        self.residual_scale = spec.residual_scale

    def forward(self, value: Tensor, rope: tuple[Tensor, Tensor] | None, causal: bool) -> Tensor:
        scale = self.residual_scale
        value = value + scale * self.self_attn(self.input_layernorm(value), rope, causal)
        result: Tensor = value + scale * self.mlp(self.post_attention_layernorm(value))
        return result


class Transformer(nn.Module):
    """MiniCPM-4's stack; ``vocabulary`` adds the token table."""

    def __init__(self, spec: TransformerSpec, theta: float, vocabulary: int = 0) -> None:
        super().__init__()
        self.spec, self.theta = spec, theta
        if vocabulary:
            self.embed_tokens = nn.Embedding(vocabulary, spec.hidden)
        self.layers: Any = nn.ModuleList(Layer(spec) for _ in range(spec.num_layers))
        self.norm = Norm(spec.hidden, spec.eps)

    def forward(self, value: Tensor, *, causal: bool) -> Tensor:
        rope = _rope_table(value.shape[1], self.spec, self.theta) if self.spec.rope else None
        for layer in self.layers:
            value = layer(value, rope, causal)
        result: Tensor = self.norm(value)
        return result


class PatchEncoder(nn.Module):
    """Patches [N, P, D] to one row [N, hidden] each."""

    def __init__(self, spec: TransformerSpec, theta: float, channels: int) -> None:
        super().__init__()
        self.special_token = nn.Parameter(torch.randn(1, 1, 1, spec.hidden))
        self.in_proj = nn.Linear(channels, spec.hidden)
        self.encoder = Transformer(spec, theta)

    def forward(self, patches: Tensor) -> Tensor:
        special = self.special_token[0].expand(len(patches), 1, -1)
        rows = torch.cat([special, self.in_proj(patches)], dim=1)
        result: Tensor = self.encoder(rows, causal=False)[:, 0]
        return result


class TimeMlp(nn.Module):
    """Two layers over a sinusoidal embedding."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.linear_1 = nn.Linear(size, size)
        self.linear_2 = nn.Linear(size, size)

    def forward(self, value: Tensor) -> Tensor:
        result: Tensor = self.linear_2(functional.silu(self.linear_1(value)))
        return result


class Estimator(nn.Module):
    """LocDiT: velocity [N, P, D] of noisy patches, given mu [N, 2 * hidden], the patch before."""

    def __init__(self, spec: TransformerSpec, theta: float, channels: int) -> None:
        super().__init__()
        self.in_proj = nn.Linear(channels, spec.hidden)
        self.cond_proj = nn.Linear(channels, spec.hidden)
        self.out_proj = nn.Linear(spec.hidden, channels)
        self.time_mlp = TimeMlp(spec.hidden)
        self.delta_time_mlp = TimeMlp(spec.hidden)
        self.decoder = Transformer(spec, theta)

    def forward(self, noisy: Tensor, mu: Tensor, time: Tensor, before: Tensor) -> Tensor:
        hidden = self.decoder.spec.hidden
        at = self.time_mlp(_sinusoid(time, hidden))
        at = at + self.delta_time_mlp(_sinusoid(torch.zeros_like(time), hidden))
        rows = [mu.view(len(mu), -1, hidden), at[:, None], self.cond_proj(before)]
        value = self.decoder(torch.cat([*rows, self.in_proj(noisy)], dim=1), causal=False)
        result: Tensor = self.out_proj(value[:, -noisy.shape[1] :])
        return result


class Flow(nn.Module):
    """Holds the estimator under its official name."""

    def __init__(self, estimator: Estimator) -> None:
        super().__init__()
        self.estimator = estimator


class Quantizer(nn.Module):
    """Finite scalar quantization, with the gradient passed straight through."""

    def __init__(self, hidden: int, size: int, scale: int) -> None:
        super().__init__()
        self.in_proj = nn.Linear(hidden, size)
        self.out_proj = nn.Linear(size, hidden)
        self.scale = scale

    def forward(self, value: Tensor) -> Tensor:
        soft = torch.tanh(self.in_proj(value))
        hard = soft + (torch.round(soft * self.scale) / self.scale - soft).detach()
        result: Tensor = self.out_proj(hard)
        return result


@dataclass(frozen=True)
class VoiceRows:
    """What the language models make of a batch.

    Attributes:
        mu: Condition of the flow per audio row, [N, 2 * dit hidden].
        stop: Stop logits per audio row, [N, 2].
        semantic: Base LM's output in front of each audio row, [N, hidden].
    """

    mu: Tensor
    stop: Tensor
    semantic: Tensor


class VoiceNet(nn.Module):
    """Everything of VoxCPM2 but the AudioVAE."""

    def __init__(self, config: VoxCpm2Config) -> None:
        super().__init__()
        self.config = config
        lm, theta = config.lm_config, config.lm_config.rope_theta
        hidden = lm.hidden_size
        encoder, flow = config.patch_encoder, config.flow
        self.base_lm = Transformer(config.base_lm, theta, lm.vocab_size)
        self.residual_lm = Transformer(config.residual_lm, theta)
        self.feat_encoder = PatchEncoder(encoder, theta, config.feat_dim)
        self.feat_decoder = Flow(Estimator(flow, theta, config.feat_dim))
        self.fsq_layer = Quantizer(
            hidden, config.scalar_quantization_latent_dim, config.scalar_quantization_scale
        )
        self.enc_to_lm_proj = nn.Linear(encoder.hidden, hidden)
        self.lm_to_dit_proj = nn.Linear(hidden, flow.hidden)
        self.res_to_dit_proj = nn.Linear(hidden, flow.hidden)
        self.fusion_concat_proj = nn.Linear(hidden * 2, hidden)
        self.stop_proj = nn.Linear(hidden, hidden)
        self.stop_head = nn.Linear(hidden, 2, bias=False)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                spread = 0.05 if "embed" in name else 0.6 / math.sqrt(weight.shape[1])
                nn.init.normal_(weight, 0, spread)

    def rows(self, tokens: Tensor, is_audio: Tensor, patches: Tensor) -> VoiceRows:
        """Run the language models with the true past.

        Args:
            tokens: [B, T]; any id where there is audio or padding.
            is_audio: [B, T], bool; the first row of a sentence is text.
            patches: Patches of all audio rows in order, [N, P, D].
        """
        embedded = self.enc_to_lm_proj(self.feat_encoder(patches))
        sound = embedded.new_zeros(*tokens.shape, embedded.shape[-1])
        sound = sound.masked_scatter(is_audio[..., None], embedded)
        text = self.base_lm.embed_tokens(tokens) * self._scale
        value = self.base_lm(torch.where(is_audio[..., None], sound, text), causal=True)
        value = torch.where(is_audio[..., None], self.fsq_layer(value), value)
        fused = self.fusion_concat_proj(torch.cat([value, sound], dim=-1))
        residual = self.residual_lm(fused, causal=True)
        # A row is predicted from what the rows in front of it gave.
        ahead = is_audio[:, 1:]
        semantic, acoustic = value[:, :-1][ahead], residual[:, :-1][ahead]
        mu = torch.cat([self.lm_to_dit_proj(semantic), self.res_to_dit_proj(acoustic)], dim=-1)
        stop = self.stop_head(functional.silu(self.stop_proj(semantic)))
        return VoiceRows(mu, stop, semantic)

    @property
    def _scale(self) -> float:
        lm: Any = self.config.lm_config
        return float(lm.scale_emb) if lm.use_mup else 1.0


def _sinusoid(value: Tensor, size: int) -> Tensor:
    half = size // 2
    steps = torch.arange(half, dtype=value.dtype, device=value.device)
    waves = torch.exp(steps * (-math.log(10000) / (half - 1)))
    angles = 1000 * value[:, None] * waves
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


def _rope_table(rows: int, spec: TransformerSpec, theta: float) -> tuple[Tensor, Tensor]:
    # Factors of one and positions within the trained ones: LongRoPE is plain rope then.
    pairs = torch.arange(0, spec.head_size, 2).float() / spec.head_size
    angles = torch.outer(torch.arange(rows).float(), theta**-pairs)
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos(), angles.sin()


def _rotate(value: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
    first, second = value.chunk(2, dim=-1)
    turned = torch.cat([-second, first], dim=-1)
    result: Tensor = value * rope[0].to(value.dtype) + turned * rope[1].to(value.dtype)
    return result
