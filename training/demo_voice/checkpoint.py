"""The trained parts as a checkpoint in the official layout."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from edge_runtime.atomic import atomic_folder
from training.demo_voice.design import config, config_document
from training.demo_voice.tokens import VoiceTokens
from training.demo_voice.voice_training import VoiceModel
from training.demo_voice.wave_decoder import DecoderSizes, WaveDecoder
from training.demo_voice.wave_encoder import WaveEncoder


def load_decoder(state: Path, *, average: bool = True) -> tuple[WaveDecoder, int]:
    """The trained decoder of a state folder, and its step."""
    codec = torch.load(state / "codec.pt", weights_only=True)
    sizes = codec["sizes"]
    decoder = WaveDecoder(DecoderSizes(sizes["latent"], sizes["width"], tuple(sizes["rates"])))
    decoder.load_state_dict(codec["average" if average else "model"])
    return decoder, codec["step"]


def write_checkpoint(
    state: Path, tokens: VoiceTokens, folder: Path, *, average: bool = True, small: bool = False
) -> dict[str, int]:
    """Write config, tokenizer, model and AudioVAE.

    Args:
        state: Folder with codec.pt, voice.pt and encoder.pt; without the last, the encoder is
            untrained, and reference audio means nothing to the voice.
        tokens: Tokenizer.
        folder: Folder to make; one that is there is replaced.
        average: The parameters' averages instead of the last ones.
        small: As it ships: the model in bfloat16, as the published one is, the AudioVAE in
            float16.

    Returns:
        Steps that each part was trained for.
    """
    chosen = "average" if average else "model"
    decoder, codec_step = load_decoder(state, average=average)
    sizes = decoder.sizes
    saved = torch.load(state / "voice.pt", weights_only=True)
    vocabulary = len(tokens.vocabulary())
    voice = VoiceModel(config(vocabulary, sizes))
    voice.load_state_dict(saved[chosen])
    encoder = WaveEncoder(latent=sizes.latent)
    steps = {"codec": codec_step, "voice": saved["step"], "encoder": 0}
    if (state / "encoder.pt").exists():
        part = torch.load(state / "encoder.pt", weights_only=True)
        encoder.load_state_dict(part["model"])
        steps["encoder"] = part["step"]
    with atomic_folder(folder, replace=True) as part_folder:
        document = config_document(vocabulary, sizes)
        text = json.dumps(document, indent=2)
        (part_folder / "config.json").write_text(text + "\n", encoding="utf-8", newline="\n")
        tokens.write(part_folder)
        model, vae = (torch.bfloat16, torch.float16) if small else (torch.float32, torch.float32)
        _save(voice.net.state_dict(), model, part_folder / "model.safetensors")
        audiovae = {**encoder.official_tensors(), **decoder.official_tensors()}
        _save(audiovae, vae, part_folder / "audiovae.safetensors")
        (part_folder / "steps.json").write_text(json.dumps(steps) + "\n", encoding="utf-8")
    return steps


def _save(tensors: dict[str, Tensor], dtype: torch.dtype, path: Path) -> None:
    save_file(
        {name: value.to(dtype).contiguous() for name, value in tensors.items()},
        path,
        metadata={"format": "pt"},
    )
