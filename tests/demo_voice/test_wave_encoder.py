"""The lean encoder against the official AudioVAE v2."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install '.[train]'")
from training.demo_voice.wave_encoder import WaveEncoder  # noqa: E402


def test_official_encoder_with_the_exported_tensors_gives_the_same_latents(
    official_model: Any,
) -> None:
    torch.manual_seed(3)
    encoder = WaveEncoder(4, (2, 5, 8), 6)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    config = official_model.AudioVAEConfigV2(
        encoder_dim=4, encoder_rates=[2, 5, 8], latent_dim=6, decoder_dim=16, decoder_rates=[8, 10],
        depthwise=True, out_sample_rate=16000, sr_bin_boundaries=None,
    )  # fmt: skip
    reference = official_model.AudioVAEV2(config)
    missing, unexpected = reference.load_state_dict(encoder.official_tensors(), strict=False)
    assert not unexpected
    assert all(name.startswith("decoder.") for name in missing)
    audio = torch.randn(2, 80 * 12)
    with torch.no_grad():
        expected = reference.encode(audio, 16000).transpose(1, 2)
        torch.testing.assert_close(encoder(audio), expected, atol=2e-6, rtol=2e-5)
