"""Seeded MioCodec checkpoints in the official layout: `config.yaml` and `model.safetensors`."""

from __future__ import annotations

import copy
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import yaml

from edge_runtime.golden.seeded import seeded
from export.miocodec.config import CONFIG, MioCodecConfig, StackConfig
from export.synthetic.maker import SYNTHETIC_KEY

FloatArray = npt.NDArray[np.float32]
Tensors = dict[str, FloatArray]


def _stack(dim: int, layers: int, heads: int, window: int, **more: Any) -> dict[str, Any]:
    return {
        "class_path": "miocodec.module.transformer.Transformer",
        "init_args": {
            "dim": dim, "n_layers": layers, "n_heads": heads, "window_size": window,
            "use_rope": True, "rope_theta": 10000.0, "max_seq_len": 512,
            "use_flash_attention": True, **more,
        },
    }  # fmt: skip


def document(size: str, rate: int) -> dict[str, Any]:
    """Fresh `config.yaml` content.

    Args:
        size: ``full``, the published sizes, or ``tiny``.
        rate: 44100 (v2, with an upsampler) or 24000.
    """
    full = size == "full"
    inner, width, voice, ssl = (768, 512, 128, 768) if full else (48, 32, 16, 48)
    layers, deeper = (6, 8) if full else (2, 3)
    heads, fewer = (12, 8) if full else (3, 2)
    wide, narrow = (125, 65) if full else (19, 9)
    small = {} if full else {"multiple_of": 32}
    quantizer = {"input_dim": inner, "output_dim": inner, "levels": [8, 8, 8, 5, 5]}
    encoder = {
        "input_channels": ssl, "output_channels": voice, "num_layers": 4 if full else 2,
        "dim": 384 if full else 24, "intermediate_dim": 1152 if full else 48,
    }  # fmt: skip
    config: dict[str, Any] = {
        "local_ssl_layers": [6, 9], "global_ssl_layers": [1, 2], "normalize_ssl_features": True,
        "downsample_factor": 2, "use_conv_downsample": True, "sample_rate": rate,
        "n_fft": 1920, "hop_length": 480, "use_wave_decoder": True, "wave_upsample_factor": 2,
        "wave_interpolation_mode": "linear", "wave_decoder_dim": width,
        "wave_resnet_num_blocks": 2, "wave_resnet_kernel_size": 3,
        "wave_resnet_num_groups": 32 if full else 4, "wave_resnet_dropout": 0.1,
        "istft_padding": "same",
    }  # fmt: skip
    if rate == 44100:
        config |= {
            "n_fft": 392, "hop_length": 98, "wave_upsampler_factors": [3, 3],
            "wave_upsampler_kernel_sizes": [9, 9],
        }  # fmt: skip
    arguments = {
        "config": config,
        "ssl_feature_extractor": {
            "class_path": "miocodec.module.ssl_extractor.SSLFeatureExtractor",
            "init_args": {
                "model_name": "wavlm_base_plus", "output_layer": 9, "sample_rate": rate
            },
        },
        "local_encoder": _stack(inner, layers, heads, wide, **small),
        "local_quantizer": {
            "class_path": "miocodec.module.fsq.FiniteScalarQuantizer", "init_args": quantizer
        },
        "feature_decoder": _stack(inner, layers, heads, wide, **small),
        "global_encoder": {
            "class_path": "miocodec.module.global_encoder.GlobalEncoder", "init_args": encoder
        },
        "mel_prenet": None, "mel_decoder": None, "mel_postnet": None,
        "wave_prenet": _stack(inner, layers, heads, narrow, output_dim=width, **small),
        "wave_decoder": _stack(
            width, deeper, fewer, narrow, adanorm_condition_dim=voice, use_adaln_zero=True, **small
        ),
    }  # fmt: skip
    return {"model": {"class_path": "miocodec.model.MioCodecModel", "init_args": arguments}}


def make_miocodec(folder: Path, *, size: str = "tiny", rate: int = 44100, seed: int = 0) -> Path:
    """Write a checkpoint with seeded noise for weights.

    Args:
        folder: Folder to make; it must not be there.
        size: ``full`` or ``tiny``.
        rate: 44100 or 24000.
        seed: The same seed gives the same values on every machine.

    Returns:
        ``folder``.
    """
    from safetensors.numpy import save_file

    data = document(size, rate)
    folder.mkdir(parents=True)
    arguments = copy.deepcopy(data["model"]["init_args"])
    config = MioCodecConfig.model_validate(arguments)
    text = f"# {SYNTHETIC_KEY}: {size}\n" + yaml.safe_dump(data, sort_keys=False)
    (folder / CONFIG).write_text(text, encoding="utf-8", newline="\n")
    save_file(dict(_tensors(config, seed)), folder / "model.safetensors")
    return folder


def _tensors(config: MioCodecConfig, seed: int) -> Iterator[tuple[str, FloatArray]]:
    """Every tensor that a published checkpoint has."""
    codec, levels = config.config, config.local_quantizer.init_args
    width = codec.wave_decoder_dim
    shapes: dict[str, tuple[int, ...]] = {}
    shapes |= _stack_shapes("local_encoder", config.local_encoder.init_args)
    shapes |= _linear("local_quantizer.proj_in", len(levels.levels), levels.input_dim)
    shapes |= _linear("local_quantizer.proj_out", levels.output_dim, len(levels.levels))
    inner = config.local_encoder.init_args.outputs
    shapes |= _linear("conv_downsample", inner, inner, codec.downsample_factor)
    shapes |= _global_shapes(config)
    shapes |= _stack_shapes("wave_prenet", config.wave_prenet.init_args)
    shapes |= _stack_shapes("wave_decoder", config.wave_decoder.init_args)
    shapes |= _linear("wave_conv_upsample", width, width, codec.wave_upsample_factor)
    for net in ("wave_prior_net", "wave_post_net"):
        for index in range(codec.wave_resnet_num_blocks):
            name = f"{net}.blocks.{index}"
            shapes |= _residual(name, width, codec.wave_resnet_kernel_size)
    shapes |= _upsampler_shapes(config)
    shapes |= _linear("istft_head.out", codec.n_fft + 2, width)
    for name, shape in shapes.items():
        yield name, _values(name, shape, seed)


def _values(name: str, shape: tuple[int, ...], seed: int) -> FloatArray:
    values = seeded(zlib.crc32(f"{seed}/{name}".encode()), shape)
    leaf = name.rpartition(".")[2]
    if leaf in ("alpha", "beta"):
        return (0.3 * values).astype(np.float32)
    if leaf == "original0":
        return (1 + 0.1 * values).astype(np.float32)
    if leaf == "bias":
        # A spectrum of a magnitude that the cut leaves alone.
        return (0.1 * values).astype(np.float32)
    if leaf == "weight" and len(shape) == 1:
        return (1 + 0.1 * values).astype(np.float32)
    if leaf == "gamma":
        return (0.5 + 0.1 * values).astype(np.float32)
    fan_in = int(np.prod(shape[1:]))
    gain = 2.0 if name.endswith("proj_in.weight") else 1.0
    weights: FloatArray = (gain / np.sqrt(fan_in) * values).astype(np.float32)
    return weights


def _linear(name: str, outputs: int, *inputs: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (outputs, *inputs), f"{name}.bias": (outputs,)}


def _stack_shapes(name: str, stack: StackConfig) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    dim, condition = stack.dim, stack.adanorm_condition_dim

    def norm(place: str, parts: int) -> dict[str, tuple[int, ...]]:
        if condition is None:
            return _linear(f"{name}.{place}", dim)
        return _linear(f"{name}.{place}.condition_proj.1", parts * dim, condition)

    for index in range(stack.n_layers):
        layer = f"{name}.layers.{index}"
        for part in ("wq", "wk", "wv", "wo"):
            shapes[f"{layer}.attention.{part}.weight"] = (dim, dim)
        for part, shape in (("w1", (stack.ffn, dim)), ("w2", (dim, stack.ffn)),
                            ("w3", (stack.ffn, dim))):  # fmt: skip
            shapes[f"{layer}.feed_forward.{part}.weight"] = shape
        for place in ("attention_norm", "ffn_norm"):
            shapes |= norm(f"layers.{index}.{place}", 3)
    shapes |= norm("norm", 2)
    if stack.output_dim is not None:
        shapes |= _linear(f"{name}.output_proj", stack.output_dim, dim)
    return shapes


def _residual(name: str, width: int, kernel: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    for index in (1, 2):
        shapes |= _linear(f"{name}.norm{index}", width)
        shapes |= _linear(f"{name}.conv{index}", width, width, kernel)
    return shapes


def _upsampler_shapes(config: MioCodecConfig) -> dict[str, tuple[int, ...]]:
    codec = config.config
    shapes: dict[str, tuple[int, ...]] = {}
    width, name = codec.wave_decoder_dim, "wave_upsampler"
    if not codec.wave_upsampler_factors:
        return shapes
    for index, kernel in enumerate(codec.wave_upsampler_kernel_sizes):
        layer = f"{name}.upsample_layers.{index}"
        shapes[f"{layer}.bias"] = (width // 2,)
        shapes[f"{layer}.parametrizations.weight.original0"] = (width, 1, 1)
        shapes[f"{layer}.parametrizations.weight.original1"] = (width, width // 2, kernel)
        width //= 2
        for part in ("alpha", "beta"):
            shapes[f"{name}.snake_activations.{index}.{part}"] = (width,)
        shapes |= _residual(f"{name}.resnet_blocks.{index}", width, 3)
    shapes |= _linear(f"{name}.out_proj", codec.wave_decoder_dim, width)
    for part in ("alpha", "beta"):
        shapes[f"{name}.out_snake.{part}"] = (codec.wave_decoder_dim,)
    return shapes


def _global_shapes(config: MioCodecConfig) -> dict[str, tuple[int, ...]]:
    encoder = config.global_encoder.init_args
    dim, pool = encoder.dim, "global_encoder.pooling"
    shapes = _linear("global_encoder.backbone.embed", dim, encoder.input_channels, 7)
    for name in ("norm", "final_layer_norm"):
        shapes |= _linear(f"global_encoder.backbone.{name}", dim)
    for index in range(encoder.num_layers):
        layer = f"global_encoder.backbone.convnext.{index}"
        shapes |= _linear(f"{layer}.dwconv", dim, 1, 7)
        shapes |= _linear(f"{layer}.norm", dim)
        shapes |= _linear(f"{layer}.pwconv1", encoder.intermediate_dim, dim)
        shapes |= _linear(f"{layer}.pwconv2", dim, encoder.intermediate_dim)
        shapes[f"{layer}.gamma"] = (dim,)
    shapes |= _linear(f"{pool}.attn.0", encoder.attention_channels, dim, 1)
    shapes |= _linear(f"{pool}.attn.2", dim, encoder.attention_channels, 1)
    shapes |= _linear(f"{pool}.proj", encoder.output_channels, 2 * dim)
    shapes |= _linear(f"{pool}.norm", encoder.output_channels)
    return shapes
