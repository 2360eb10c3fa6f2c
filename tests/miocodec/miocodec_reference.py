"""The reference (github.com/Aratako/MioCodec, needs torch and torchaudio) on a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from miocodec.model import MioCodecModel, MioCodecModelConfig
from miocodec.module.fsq import FiniteScalarQuantizer
from miocodec.module.global_encoder import GlobalEncoder
from miocodec.module.transformer import Transformer
from safetensors.torch import load_file


class NoFeatures(torch.nn.Module):
    """In place of WavLM, where features are given; the lengths are its own."""

    feature_dim = 768
    ssl_sample_rate = 16000
    hop_size = 320

    def get_minimum_input_length(self, rows: int) -> int:
        return (rows - 1) * 320 + 400


def load_reference(checkpoint: Path, ssl: torch.nn.Module | None = None) -> MioCodecModel:
    """The official model with a checkpoint's weights."""
    torch.set_num_threads(1)
    document = yaml.safe_load((checkpoint / "config.yaml").read_text())["model"]["init_args"]

    def arguments(name: str) -> dict[str, Any]:
        return document[name]["init_args"]

    model = MioCodecModel(
        MioCodecModelConfig(**document["config"]),
        ssl or NoFeatures(),
        Transformer(**arguments("local_encoder")),
        FiniteScalarQuantizer(**arguments("local_quantizer")),
        None,
        GlobalEncoder(**arguments("global_encoder")),
        wave_prenet=Transformer(**arguments("wave_prenet")),
        wave_decoder=Transformer(**arguments("wave_decoder")),
    )
    state = load_file(checkpoint / "model.safetensors")
    missing, unexpected = model.load_state_dict(state, strict=False)
    left = [name for name in missing if not name.startswith(("conv_upsample", "ssl_feature"))]
    assert left == ["istft_head.istft.window"], left
    assert not unexpected
    return model.eval()


@torch.inference_mode()
def decode(
    model: MioCodecModel, tokens: np.ndarray, voice: np.ndarray, samples: int | None
) -> np.ndarray:
    """What the official `decode` gives."""
    return model.decode(
        torch.from_numpy(voice), torch.from_numpy(tokens), target_audio_length=samples
    ).numpy()


@torch.inference_mode()
def content(model: MioCodecModel, features: dict[int, np.ndarray]) -> dict[str, np.ndarray]:
    """Tokens, latents before rounding, and voice of features by layer."""
    layers = [torch.from_numpy(features.get(layer, features[1]))[None] for layer in range(1, 10)]
    config = model.config
    local = model._normalize_ssl_features(
        model._process_ssl_features(layers, list(config.local_ssl_layers))
    )
    wide = model._process_ssl_features(layers, list(config.global_ssl_layers))
    encoded = model.conv_downsample(model.local_encoder(local).transpose(1, 2)).transpose(1, 2)
    _, tokens, _, _ = model.forward_content(local)
    return {
        "tokens": tokens[0].numpy(),
        "latents": model.local_quantizer.proj_in(encoded)[0].numpy(),
        "voice": model.forward_global(wide)[0].numpy(),
    }
