"""MioCodec's `config.yaml` as frozen models; what the exporter does not support is refused here.

Source: `MioCodecModelConfig`, `Transformer`, `FiniteScalarQuantizer` and `GlobalEncoder` of
github.com/Aratako/MioCodec (commit 7747354).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from device_profiles.plain_file import read_plain_file
from edge_runtime.errors import CheckpointError, UnsupportedError

CONFIG = "config.yaml"
_REMEDY = "Correct the named keys or use the published file."
_SUPPORTED = "Use MioCodec-25Hz-44.1kHz-v2 or MioCodec-25Hz-24kHz."

Part = TypeVar("Part", bound=BaseModel)


class _Frozen(BaseModel):
    # jsonargparse refuses keys that it does not know, so they would change nothing known here.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Built(_Frozen, Generic[Part]):
    """A part as jsonargparse writes it: a class and its arguments."""

    class_path: str
    init_args: Part


class StackConfig(_Frozen):
    """`Transformer`: pre-norm blocks with rotation, attention in a window, gated MLP."""

    dim: int = Field(gt=0)
    n_layers: int = Field(gt=0)
    n_heads: int = Field(gt=0)
    window_size: int = Field(gt=0)
    multiple_of: int = Field(256, gt=0)
    norm_eps: float = Field(1e-5, gt=0)
    rope_theta: float = Field(500000.0, gt=0)
    output_dim: int | None = Field(None, gt=0)
    adanorm_condition_dim: int | None = Field(None, gt=0)
    use_adaln_zero: bool = False
    use_rope: Literal[True] = True
    qkv_bias: Literal[False] = False
    proj_bias: Literal[False] = False
    causal: Literal[False] = False
    input_dim: None = None
    ffn_dim_multiplier: None = None
    # Of training, of a GPU, or of tables that grow by themselves.
    dropout: float = 0.1
    max_seq_len: int = 2048
    use_flash_attention: bool = False
    use_xavier_init: bool = True

    @model_validator(mode="after")
    def _fits(self) -> StackConfig:
        if self.dim % self.n_heads or (self.dim // self.n_heads) % 2:
            raise ValueError(f"dim {self.dim} does not make {self.n_heads} heads of even size")
        if self.window_size % 2 == 0:
            raise ValueError(f"window_size {self.window_size} is even")
        if self.use_adaln_zero != (self.adanorm_condition_dim is not None):
            raise ValueError("use_adaln_zero and adanorm_condition_dim go together")
        return self

    @property
    def head_size(self) -> int:
        """Dimensions per head."""
        return self.dim // self.n_heads

    @property
    def side(self) -> int:
        """Rows that attention sees on either side."""
        return self.window_size // 2

    @property
    def ffn(self) -> int:
        """Width of the MLP: two thirds of four times the width, rounded up."""
        wide = int(2 * 4 * self.dim / 3)
        return -(-wide // self.multiple_of) * self.multiple_of

    @property
    def outputs(self) -> int:
        """Width of what comes out."""
        return self.output_dim or self.dim


class QuantizerConfig(_Frozen):
    """`FiniteScalarQuantizer`."""

    input_dim: int = Field(gt=0)
    output_dim: int = Field(gt=0)
    levels: tuple[int, ...] = Field(min_length=1)


class GlobalConfig(_Frozen):
    """`GlobalEncoder`: ConvNeXt and attentive statistics."""

    input_channels: int = Field(gt=0)
    output_channels: int = Field(gt=0)
    dim: int = Field(gt=0)
    intermediate_dim: int = Field(gt=0)
    num_layers: int = Field(gt=0)
    attention_channels: int = Field(128, gt=0)
    skip_embed: Literal[False] = False
    use_attn_pool: Literal[True] = True


class SslConfig(_Frozen):
    """`SSLFeatureExtractor`: WavLM as torchaudio has it."""

    model_name: Literal["wavlm_base_plus"]
    output_layer: int = Field(gt=0)
    sample_rate: int = Field(gt=0)


class CodecConfig(_Frozen):
    """`MioCodecModelConfig`, as far as a model with a wave decoder reads it."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    local_ssl_layers: tuple[int, ...] = (6, 9)
    global_ssl_layers: tuple[int, ...] = (1, 2)
    normalize_ssl_features: Literal[True] = True
    downsample_factor: Literal[2] = 2
    use_conv_downsample: Literal[True] = True
    sample_rate: int = Field(24000, gt=0)
    n_fft: int = Field(1024, gt=0)
    hop_length: int = Field(256, gt=0)
    wave_upsample_factor: int = Field(4, ge=1)
    wave_interpolation_mode: Literal["linear"] = "linear"
    wave_decoder_dim: int = Field(512, gt=0)
    wave_resnet_num_blocks: int = Field(2, ge=1)
    wave_resnet_kernel_size: int = Field(3, ge=1)
    wave_resnet_num_groups: int = Field(32, ge=1)
    istft_padding: Literal["same"] = "same"
    wave_upsampler_factors: tuple[int, ...] = ()
    wave_upsampler_kernel_sizes: tuple[int, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _kernels(cls, data: Any) -> Any:
        """Absent kernels are twice the factors; absent factors mean no upsampler."""
        if not isinstance(data, dict):
            return data
        factors = data.get("wave_upsampler_factors") or ()
        kernels = data.get("wave_upsampler_kernel_sizes") or [2 * factor for factor in factors]
        return {
            **data, "wave_upsampler_factors": factors, "wave_upsampler_kernel_sizes": kernels
        }  # fmt: skip

    @model_validator(mode="after")
    def _fits(self) -> CodecConfig:
        if self.wave_resnet_kernel_size % 2 == 0:
            raise ValueError("wave_resnet_kernel_size is even")
        if self.n_fft % 2 or (self.n_fft - self.hop_length) % 2 or self.n_fft <= self.hop_length:
            raise ValueError(f"n_fft {self.n_fft} does not go with hop_length {self.hop_length}")
        pairs = zip(self.wave_upsampler_factors, self.wave_upsampler_kernel_sizes, strict=True)
        for factor, kernel in pairs:
            if factor < 1 or kernel < factor or (kernel - factor) % 2:
                raise ValueError(f"an upsampler of factor {factor} cannot have kernel {kernel}")
        return self

    @property
    def upsampling(self) -> int:
        """Spectrum frames per decoder frame."""
        total = 1
        for factor in self.wave_upsampler_factors:
            total *= factor
        return total


class MioCodecConfig(_Frozen):
    """A whole model with a wave decoder."""

    config: CodecConfig
    ssl_feature_extractor: Built[SslConfig]
    local_encoder: Built[StackConfig]
    local_quantizer: Built[QuantizerConfig]
    # Only trained with; its weights are not in published checkpoints.
    feature_decoder: Any = None
    global_encoder: Built[GlobalConfig]
    mel_prenet: None = None
    mel_decoder: None = None
    mel_postnet: None = None
    wave_prenet: Built[StackConfig]
    wave_decoder: Built[StackConfig]

    @model_validator(mode="after")
    def _fits(self) -> MioCodecConfig:
        codec, quantizer = self.config, self.local_quantizer.init_args
        encoded = self.local_encoder.init_args.outputs
        prenet, decoder = self.wave_prenet.init_args, self.wave_decoder.init_args
        checks = (
            (encoded, quantizer.input_dim, "local_quantizer.input_dim"),
            (quantizer.output_dim, prenet.dim, "wave_prenet.dim"),
            (prenet.outputs, codec.wave_decoder_dim, "config.wave_decoder_dim"),
            (codec.wave_decoder_dim, decoder.dim, "wave_decoder.dim"),
            (decoder.outputs, codec.wave_decoder_dim, "wave_decoder.output_dim"),
            (self.global_encoder.init_args.output_channels, decoder.adanorm_condition_dim,
             "wave_decoder.adanorm_condition_dim"),
            (codec.sample_rate, self.ssl_feature_extractor.init_args.sample_rate,
             "ssl_feature_extractor.sample_rate"),
        )  # fmt: skip
        for wanted, found, name in checks:
            if wanted != found:
                raise ValueError(f"{name} is {found}, what goes with it is {wanted}")
        if self.local_encoder.init_args.use_adaln_zero or prenet.use_adaln_zero:
            raise ValueError("only wave_decoder may have use_adaln_zero")
        return self

    @property
    def layers(self) -> tuple[int, ...]:
        """WavLM layers that are read, counted from 1."""
        return tuple(sorted({*self.config.local_ssl_layers, *self.config.global_ssl_layers}))


def load_config(folder: Path) -> MioCodecConfig:
    """Read and check ``config.yaml`` of an official checkpoint folder.

    Raises:
        CheckpointError: Missing, not YAML, or a key with a wrong value (file and key are named).
        UnsupportedError: The variant with an external vocoder.
    """
    file = folder / CONFIG
    try:
        data = yaml.safe_load(read_plain_file(file).decode("utf-8"))
        model = data["model"]["init_args"]
        codec = model["config"]
    except FileNotFoundError:
        raise CheckpointError(
            f"{file} does not exist.", remedy=f"Name the folder that holds {CONFIG}."
        ) from None
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise CheckpointError(
            f"{file} is not readable YAML: {error}.", remedy="Download the checkpoint again."
        ) from error
    except (KeyError, TypeError) as error:
        raise CheckpointError(
            f"{file} has no model.init_args.config.", remedy="Download the checkpoint again."
        ) from error
    if not isinstance(codec, dict) or not codec.get("use_wave_decoder"):
        raise UnsupportedError(
            f"{file}: use_wave_decoder is not set: this is MioCodec-25Hz-44.1kHz (legacy), whose "
            "sound comes from an external vocoder (MioVocoder), which is not supported.",
            remedy=_SUPPORTED,
        )
    try:
        return MioCodecConfig.model_validate(model)
    except ValidationError as error:
        details = "; ".join(
            f"{'.'.join(str(part) for part in item['loc']) or 'model'}: {item['msg']}"
            for item in error.errors()
        )
        raise CheckpointError(f"{file}: {details}.", remedy=_REMEDY) from error
