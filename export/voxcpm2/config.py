"""VoxCPM2's `config.json` as frozen models; what the exporter does not support is refused here.

Source: `VoxCPMConfig`, `MiniCPM4Config`, `CfmConfig` and `AudioVAEConfig` of voxcpm 2.0.3.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from device_profiles.plain_file import read_plain_file
from edge_runtime.errors import CheckpointError, UnsupportedError
from export.graph.transformer_spec import TransformerSpec

Factor = Annotated[float, Field(gt=0)]


class _Frozen(BaseModel):
    # The official models ignore keys they do not know, and published configs rely on it.
    # Python's JSON reader takes NaN and Infinity; no key here can have them.
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class RopeScaling(_Frozen):
    """LongRoPE factors; one per pair of head dimensions."""

    type: Literal["longrope"] = "longrope"
    long_factor: tuple[Factor, ...]
    short_factor: tuple[Factor, ...]
    original_max_position_embeddings: int = Field(gt=1)


class LmConfig(_Frozen):
    """MiniCPM-4 decoder. `kv_channels` is the head size; absent means hidden / heads."""

    hidden_size: int = Field(gt=0)
    intermediate_size: int = Field(gt=0)
    max_position_embeddings: int = Field(gt=0)
    num_attention_heads: int = Field(gt=0)
    num_hidden_layers: int = Field(gt=0)
    num_key_value_heads: int = Field(gt=0)
    rms_norm_eps: float = Field(gt=0)
    rope_scaling: RopeScaling
    vocab_size: int = Field(gt=0)
    use_mup: bool = True
    scale_emb: float
    dim_model_base: int = 256
    scale_depth: float
    rope_theta: float = Field(gt=0)
    kv_channels: int | None = Field(None, gt=0)
    no_rope: bool = False


class EncoderConfig(_Frozen):
    """Local encoder: one patch to one row."""

    hidden_dim: int = Field(1024, gt=0)
    ffn_dim: int = Field(4096, gt=0)
    num_heads: int = Field(16, gt=0)
    num_layers: int = Field(4, gt=0)
    kv_channels: int | None = Field(None, gt=0)


class CfmConfig(_Frozen):
    """Flow matching. Inference reads none of these in voxcpm 2.0.3; they are checked, not used."""

    sigma_min: float = 1e-6
    solver: Literal["euler"] = "euler"
    t_scheduler: str = "log-norm"
    inference_cfg_rate: float = 1.0


class DitConfig(EncoderConfig):
    """Local diffusion transformer (the flow estimator)."""

    dit_mean_mode: bool = False
    cfm_config: CfmConfig


class AudioVaeConfig(_Frozen):
    """AudioVAE v2."""

    encoder_dim: int = Field(128, gt=0)
    encoder_rates: tuple[int, ...] = Field((2, 5, 8, 8), min_length=1)
    latent_dim: int | None = 64
    decoder_dim: int = Field(2048, gt=0)
    decoder_rates: tuple[int, ...] = Field((8, 6, 5, 2, 2, 2), min_length=1)
    depthwise: bool = True
    sample_rate: int = Field(16000, gt=0)
    out_sample_rate: int = Field(48000, gt=0)
    use_noise_block: bool = False
    sr_bin_boundaries: tuple[int, ...] | None = (20000, 30000, 40000)
    cond_type: Literal["scale_bias", "scale_bias_init", "add", "concat"] = "scale_bias"
    cond_dim: int = Field(128, gt=0)
    cond_out_layer: bool = False

    @property
    def latent_channels(self) -> int:
        """Channels of the latent; by default what the encoder ends with."""
        return self.latent_dim or self.encoder_dim * 2 ** len(self.encoder_rates)

    @property
    def encoder_hop(self) -> int:
        """Input samples per latent frame."""
        return math.prod(self.encoder_rates)

    @property
    def decoder_hop(self) -> int:
        """Output samples per latent frame."""
        return math.prod(self.decoder_rates)

    @model_validator(mode="after")
    def _check(self) -> AudioVaeConfig:
        if any(rate < 1 for rate in (*self.encoder_rates, *self.decoder_rates)):
            raise ValueError("encoder_rates and decoder_rates must be 1 or more")
        if self.decoder_dim % 2 ** len(self.decoder_rates):
            raise ValueError(
                f"decoder_dim {self.decoder_dim} cannot be halved {len(self.decoder_rates)} times"
            )
        conditioned = self.sr_bin_boundaries is not None
        if conditioned and self.cond_type == "concat" and not self.cond_out_layer:
            raise ValueError('cond_type "concat" needs cond_out_layer true')
        return self


class VoxCpm2Config(_Frozen):
    """Whole `config.json`."""

    architecture: Literal["voxcpm2"]
    lm_config: LmConfig
    patch_size: int = Field(4, gt=0)
    feat_dim: int = Field(64, gt=0)
    residual_lm_num_layers: int = Field(8, gt=0)
    residual_lm_no_rope: bool = False
    scalar_quantization_latent_dim: int = Field(512, gt=0)
    scalar_quantization_scale: int = Field(9, gt=0)
    encoder_config: EncoderConfig
    dit_config: DitConfig
    audio_vae_config: AudioVaeConfig = AudioVaeConfig()
    max_length: int = Field(8192, gt=0, le=1 << 20)

    @model_validator(mode="before")
    @classmethod
    def _default_vae(cls, data: Any) -> Any:
        # The official loader treats null like an absent key: the default AudioVAE.
        if isinstance(data, dict) and data.get("audio_vae_config", ...) is None:
            return {k: v for k, v in data.items() if k != "audio_vae_config"}
        return data

    @model_validator(mode="after")
    def _check(self) -> VoxCpm2Config:
        lm = self.lm_config
        transformers = {"lm_config": self.base_lm, "encoder_config": self.patch_encoder}
        for key, part in {**transformers, "dit_config": self.flow}.items():
            if part.num_heads % part.num_kv_heads:
                raise ValueError(
                    f"{key}: {part.num_heads} heads are not a multiple of "
                    f"{part.num_kv_heads} KV heads (lm_config.num_key_value_heads)"
                )
            if part.head_size < 1:
                raise ValueError(
                    f"{key}: hidden size {part.hidden} is smaller than its {part.num_heads} heads"
                )
            if part.head_size % 2 and part.rope:
                raise ValueError(f"{key}: head size {part.head_size} is odd, rope needs it even")
            for name in ("long_factor", "short_factor"):
                count = len(getattr(lm.rope_scaling, name))
                if part.rope and count not in (1, part.head_size // 2):
                    raise ValueError(
                        f"lm_config.rope_scaling.{name} has {count} factors, {key} needs "
                        f"{part.head_size // 2} (half its head size)"
                    )
        if self.flow.hidden % 2 or self.flow.hidden < 4:
            raise ValueError("dit_config.hidden_dim must be even and at least 4")
        if self.audio_vae_config.latent_channels != self.feat_dim:
            raise ValueError(
                f"feat_dim {self.feat_dim} differs from audio_vae_config.latent_dim "
                f"{self.audio_vae_config.latent_channels}"
            )
        return self

    @property
    def max_rows(self) -> int:
        """KV rows that a request can use: the rope tables of the reference end there too."""
        if self.base_lm.rope or self.residual_lm.rope:
            return min(self.max_length, self.lm_config.max_position_embeddings)
        return self.max_length

    @property
    def base_lm(self) -> TransformerSpec:
        """Base LM: text and audio rows to semantic hidden states."""
        lm = self.lm_config
        return self._transformer(
            lm.hidden_size, lm.intermediate_size, lm.num_attention_heads, lm.num_hidden_layers,
            lm.kv_channels, lm.no_rope,
        )  # fmt: skip

    @property
    def residual_lm(self) -> TransformerSpec:
        """Residual acoustic LM; its own `no_rope` flag replaces the base's."""
        lm = self.lm_config
        return self._transformer(
            lm.hidden_size, lm.intermediate_size, lm.num_attention_heads,
            self.residual_lm_num_layers, lm.kv_channels, self.residual_lm_no_rope,
        )  # fmt: skip

    @property
    def patch_encoder(self) -> TransformerSpec:
        """Local encoder."""
        return self._local(self.encoder_config)

    @property
    def flow(self) -> TransformerSpec:
        """Flow estimator."""
        return self._local(self.dit_config)

    def _local(self, part: EncoderConfig) -> TransformerSpec:
        return self._transformer(
            part.hidden_dim, part.ffn_dim, part.num_heads, part.num_layers, part.kv_channels,
            self.lm_config.no_rope,
        )  # fmt: skip

    def _transformer(
        self, hidden: int, ffn: int, heads: int, layers: int, kv: int | None, no_rope: bool
    ) -> TransformerSpec:
        lm = self.lm_config
        return TransformerSpec(
            hidden=hidden,
            ffn=ffn,
            num_heads=heads,
            num_kv_heads=lm.num_key_value_heads,
            head_size=kv if kv is not None else hidden // heads,
            num_layers=layers,
            eps=lm.rms_norm_eps,
            residual_scale=lm.scale_depth / math.sqrt(layers) if lm.use_mup else 1.0,
            rope=not no_rope,
        )


def load_config(folder: Path) -> VoxCpm2Config:
    """Read and check ``config.json`` of an official checkpoint folder.

    Raises:
        CheckpointError: Missing, not JSON, or a key with a wrong value (file and key are named).
        UnsupportedError: Another architecture, or quantized weights.
    """
    file = folder / "config.json"
    try:
        data = json.loads(read_plain_file(file).decode("utf-8"))
    except FileNotFoundError:
        raise CheckpointError(
            f"{file} does not exist.", remedy="Name the folder that holds config.json."
        ) from None
    except (ValueError, OSError, RecursionError) as error:
        raise CheckpointError(
            f"{file} is not readable JSON: {error}.", remedy="Download the checkpoint again."
        ) from error
    if not isinstance(data, dict):
        raise CheckpointError(
            f"{file} holds no JSON object.", remedy="Download the checkpoint again."
        )
    if "architecture" not in data:
        raise UnsupportedError(
            f"{file} has no key 'architecture': VoxCPM 1 and 1.5 are not supported.",
            remedy="This exporter takes VoxCPM2 checkpoints (architecture 'voxcpm2').",
        )
    architecture = str(data["architecture"]).lower()
    if architecture != "voxcpm2":
        raise UnsupportedError(
            f"{file}: architecture {architecture!r} is not supported.",
            remedy="This exporter takes VoxCPM2 checkpoints (architecture 'voxcpm2').",
        )
    if "quantization_config" in data:
        raise UnsupportedError(
            f"{file}: quantization_config is not supported.",
            remedy="Export from the unquantized checkpoint and choose --weights int8 or int4.",
        )
    try:
        return VoxCpm2Config.model_validate({**data, "architecture": architecture})
    except ValidationError as error:
        details = "; ".join(
            f"{'.'.join(str(part) for part in item['loc']) or 'config'}: {item['msg']}"
            for item in error.errors()
        )
        raise CheckpointError(
            f"{file}: {details}.", remedy="Correct the named keys or use the published file."
        ) from error
