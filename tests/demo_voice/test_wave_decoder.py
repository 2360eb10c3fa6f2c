"""The lean decoder against the official AudioVAE v2."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install '.[train]'")
from training.demo_voice.wave_decoder import DecoderSizes, WaveDecoder, normalized  # noqa: E402

SMALL = DecoderSizes(latent=6, width=64, rates=(2, 4, 10))


def make_decoder() -> WaveDecoder:
    torch.manual_seed(3)
    decoder = WaveDecoder(SMALL)
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return decoder


def test_official_decoder_with_the_exported_tensors_gives_the_same_audio(
    official_model: Any,
) -> None:
    decoder = make_decoder()
    config = official_model.AudioVAEConfigV2(
        encoder_dim=2, encoder_rates=[2, 4, 10], latent_dim=6, decoder_dim=64,
        decoder_rates=[2, 4, 10], depthwise=True, out_sample_rate=16000, sr_bin_boundaries=None,
    )  # fmt: skip
    reference = official_model.AudioVAEV2(config)
    tensors = decoder.official_tensors()
    missing, unexpected = reference.load_state_dict(tensors, strict=False)
    assert not unexpected
    assert all(name.startswith("encoder.") for name in missing)
    latents = torch.randn(2, 9, 6)
    with torch.no_grad():
        expected = reference.decode(latents.transpose(1, 2))[:, 0]
        torch.testing.assert_close(decoder(latents), expected, atol=2e-6, rtol=2e-5)


def test_output_depends_on_no_later_frame() -> None:
    decoder, latents = make_decoder(), torch.randn(1, 8, 6)
    changed = latents.clone()
    changed[:, 5:] = 0
    with torch.no_grad():
        first, second = decoder(latents), decoder(changed)
    assert torch.equal(first[:, : 5 * 80], second[:, : 5 * 80])
    assert not torch.equal(first[:, 5 * 80 :], second[:, 5 * 80 :])


def test_kernel_of_zeros_keeps_a_direction() -> None:
    pair = normalized(torch.zeros(2, 3, 4))
    assert not pair["weight_g"].any()
    assert pair["weight_v"].all()
