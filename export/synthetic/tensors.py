"""Names, shapes and roles of every tensor of a VoxCPM2 checkpoint, derived from its config.

Source: the state dict of voxcpm 2.0.3's `VoxCPM2Model` and `AudioVAEV2`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from export.graph.transformer_spec import TransformerSpec
from export.voxcpm2.config import AudioVaeConfig, VoxCpm2Config

Kind = Literal[
    "weight",  # matrix or kernel, sized by its fan-in
    "bias",
    "scale",  # norm gains and the like, near 1
    "embedding",
    "alpha",  # Snake's frequency
    "direction",  # weight_v of a weight norm
    "magnitude",  # weight_g of a weight norm
    "stop",  # the stop head: its two rows are compared with each other
    "constant",
]


@dataclass(frozen=True)
class TensorSpec:
    """One tensor.

    Attributes:
        name: Key in the checkpoint file.
        shape: Dimensions.
        kind: What the tensor does, hence how its values are drawn.
        gain: Scale of the values, relative to what is usual for the kind.
        values: Content of a ``constant`` (stored as int32).
    """

    name: str
    shape: tuple[int, ...]
    kind: Kind
    gain: float = 1.0
    values: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


def model_tensors(config: VoxCpm2Config) -> Iterator[TensorSpec]:
    """Tensors of ``model.safetensors``, in the official order."""
    lm = config.lm_config
    hidden, features, latent = (
        lm.hidden_size,
        config.feat_dim,
        config.scalar_quantization_latent_dim,
    )
    encoder, flow = config.patch_encoder, config.flow
    # What reaches the first layer is scale_emb times the row.
    row_gain = 0.5 / lm.scale_emb if lm.use_mup else 0.5
    yield TensorSpec("base_lm.embed_tokens.weight", (lm.vocab_size, hidden), "embedding", row_gain)
    yield from _transformer("base_lm", config.base_lm)
    yield from _transformer("residual_lm", config.residual_lm)
    yield TensorSpec("feat_encoder.special_token", (1, 1, 1, encoder.hidden), "embedding")
    yield from _linear("feat_encoder.in_proj", features, encoder.hidden)
    yield from _transformer("feat_encoder.encoder", encoder)
    estimator = "feat_decoder.estimator"
    for name, inputs, outputs in (
        ("in_proj", features, flow.hidden),
        ("cond_proj", features, flow.hidden),
        ("out_proj", flow.hidden, features),
        ("time_mlp.linear_1", flow.hidden, flow.hidden),
        ("time_mlp.linear_2", flow.hidden, flow.hidden),
        ("delta_time_mlp.linear_1", flow.hidden, flow.hidden),
        ("delta_time_mlp.linear_2", flow.hidden, flow.hidden),
    ):
        yield from _linear(f"{estimator}.{name}", inputs, outputs)
    yield from _transformer(f"{estimator}.decoder", flow)
    for name, inputs, outputs in (
        ("fsq_layer.in_proj", hidden, latent),
        ("fsq_layer.out_proj", latent, hidden),
        ("enc_to_lm_proj", encoder.hidden, hidden),
        ("lm_to_dit_proj", hidden, flow.hidden),
        ("res_to_dit_proj", hidden, flow.hidden),
        ("fusion_concat_proj", 2 * hidden, hidden),
        ("stop_proj", hidden, hidden),
    ):
        yield from _linear(name, inputs, outputs)
    yield TensorSpec("stop_head.weight", (2, hidden), "stop")


def vae_tensors(config: AudioVaeConfig) -> Iterator[TensorSpec]:
    """Tensors of the AudioVAE file, in the official order."""
    yield from _vae_encoder(config)
    yield from _vae_decoder(config)


def _linear(
    name: str, inputs: int, outputs: int, *, bias: bool = True, gain: float = 1.0
) -> Iterator[TensorSpec]:
    yield TensorSpec(f"{name}.weight", (outputs, inputs), "weight", gain)
    if bias:
        yield TensorSpec(f"{name}.bias", (outputs,), "bias")


def _transformer(prefix: str, spec: TransformerSpec) -> Iterator[TensorSpec]:
    queries, keys = spec.num_heads * spec.head_size, spec.num_kv_heads * spec.head_size
    for index in range(spec.num_layers):
        layer = f"{prefix}.layers.{index}"
        for name, inputs, outputs in (
            ("self_attn.q_proj", spec.hidden, queries),
            ("self_attn.k_proj", spec.hidden, keys),
            ("self_attn.v_proj", spec.hidden, keys),
            ("self_attn.o_proj", queries, spec.hidden),
            ("mlp.gate_proj", spec.hidden, spec.ffn),
            ("mlp.up_proj", spec.hidden, spec.ffn),
            ("mlp.down_proj", spec.ffn, spec.hidden),
        ):
            yield from _linear(f"{layer}.{name}", inputs, outputs, bias=False)
        yield TensorSpec(f"{layer}.input_layernorm.weight", (spec.hidden,), "scale")
        yield TensorSpec(f"{layer}.post_attention_layernorm.weight", (spec.hidden,), "scale")
    yield TensorSpec(f"{prefix}.norm.weight", (spec.hidden,), "scale")


def _conv(
    name: str, inputs: int, outputs: int, kernel: int, *, groups: int = 1, gain: float = 1.0,
    bias: bool = True,
) -> Iterator[TensorSpec]:  # fmt: skip
    if bias:
        yield TensorSpec(f"{name}.bias", (outputs,), "bias")
    yield TensorSpec(f"{name}.weight_g", (outputs, 1, 1), "magnitude", gain)
    yield TensorSpec(f"{name}.weight_v", (outputs, inputs // groups, kernel), "direction")


def _upsample(name: str, inputs: int, outputs: int, stride: int) -> Iterator[TensorSpec]:
    yield TensorSpec(f"{name}.bias", (outputs,), "bias")
    # The norm is taken per input channel and each output sample sums two taps per channel.
    unit = math.sqrt(outputs * stride / inputs)
    yield TensorSpec(f"{name}.weight_g", (inputs, 1, 1), "magnitude", unit)
    yield TensorSpec(f"{name}.weight_v", (inputs, outputs, 2 * stride), "direction")


def _snake(name: str, channels: int) -> Iterator[TensorSpec]:
    yield TensorSpec(f"{name}.alpha", (1, channels, 1), "alpha")


def _residual_unit(name: str, channels: int, groups: int) -> Iterator[TensorSpec]:
    yield from _snake(f"{name}.block.0", channels)
    yield from _conv(f"{name}.block.1", channels, channels, 7, groups=groups)
    yield from _snake(f"{name}.block.2", channels)
    # A branch weaker than the trunk keeps the sum of many units near unit size.
    yield from _conv(f"{name}.block.3", channels, channels, 1, gain=0.3)


def _vae_encoder(config: AudioVaeConfig) -> Iterator[TensorSpec]:
    channels = config.encoder_dim
    yield from _conv("encoder.block.0", 1, channels, 7, gain=2.0)
    for index, stride in enumerate(config.encoder_rates, start=1):
        block = f"encoder.block.{index}.block"
        for unit in range(3):
            groups = channels if config.depthwise else 1
            yield from _residual_unit(f"{block}.{unit}", channels, groups)
        yield from _snake(f"{block}.3", channels)
        yield from _conv(f"{block}.4", channels, 2 * channels, 2 * stride)
        channels *= 2
    yield from _conv("encoder.fc_mu", channels, config.latent_channels, 3, gain=1.3)
    yield from _conv("encoder.fc_logvar", channels, config.latent_channels, 3)


def _vae_decoder(config: AudioVaeConfig) -> Iterator[TensorSpec]:
    latent, width = config.latent_channels, config.decoder_dim
    if config.sr_bin_boundaries is not None:
        bounds = config.sr_bin_boundaries
        yield TensorSpec("decoder.sr_bin_boundaries", (len(bounds),), "constant", values=bounds)
    if config.depthwise:
        yield from _conv("decoder.model.0", latent, latent, 7, groups=latent)
        yield from _conv("decoder.model.1", latent, width, 1)
    else:
        yield from _conv("decoder.model.0", latent, width, 7)
    first = 2 if config.depthwise else 1
    outputs = width
    for index, stride in enumerate(config.decoder_rates):
        inputs, outputs = width // 2**index, width // 2 ** (index + 1)
        block = f"decoder.model.{first + index}.block"
        yield from _snake(f"{block}.0", inputs)
        yield from _upsample(f"{block}.1", inputs, outputs, stride)
        unit = 2
        if config.use_noise_block:
            yield from _conv(f"{block}.{unit}.linear", outputs, outputs, 1, gain=0.3, bias=False)
            unit += 1
        for _ in range(3):
            groups = outputs if config.depthwise else 1
            yield from _residual_unit(f"{block}.{unit}", outputs, groups)
            unit += 1
    last = first + len(config.decoder_rates)
    yield from _snake(f"decoder.model.{last}", outputs)
    yield from _conv(f"decoder.model.{last + 1}", outputs, 1, 7, gain=0.04)
    if config.sr_bin_boundaries is not None:
        for index in range(len(config.decoder_rates)):
            name = f"decoder.sr_cond_model.{first + index}"
            yield from _condition(name, width // 2**index, config)


def _condition(name: str, channels: int, config: AudioVaeConfig) -> Iterator[TensorSpec]:
    """Sample-rate conditioning in front of one decoder block."""
    rows = len(config.sr_bin_boundaries or ()) + 1
    inputs = channels
    if config.cond_type in ("scale_bias", "scale_bias_init"):
        yield TensorSpec(f"{name}.scale_embed.weight", (rows, channels), "scale")
        yield TensorSpec(f"{name}.bias_embed.weight", (rows, channels), "embedding", 0.1)
    elif config.cond_type == "add":
        yield TensorSpec(f"{name}.cond_embed.weight", (rows, channels), "embedding", 0.3)
    else:
        yield TensorSpec(f"{name}.cond_embed.weight", (rows, config.cond_dim), "embedding", 0.5)
        inputs += config.cond_dim
    if config.cond_out_layer:
        yield from _snake(f"{name}.out_layer.0", inputs)
        yield from _conv(f"{name}.out_layer.1", inputs, channels, 1)
