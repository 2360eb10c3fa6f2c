"""The lean forward against the official model, and what a batch holds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install '.[train]'")
from export.voxcpm2.config import VoxCpm2Config  # noqa: E402
from training.demo_voice.design import config_document  # noqa: E402
from training.demo_voice.voice_net import VoiceNet  # noqa: E402
from training.demo_voice.wave_decoder import DecoderSizes  # noqa: E402


def small_document() -> dict[str, Any]:
    document = config_document(300, DecoderSizes(latent=8, width=64))
    document["lm_config"] |= {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}
    document["encoder_config"] |= {"hidden_dim": 48, "ffn_dim": 64, "num_layers": 1}
    document["dit_config"] |= {"hidden_dim": 32, "ffn_dim": 64, "num_layers": 2}
    return document


def test_lean_forward_equals_the_official_one(official_model: Any) -> None:
    document = small_document()
    torch.manual_seed(5)
    ours = VoiceNet(VoxCpm2Config.model_validate(document))
    vae = SimpleNamespace(chunk_size=640, sample_rate=16000)
    official = official_model.VoxCPM2Model(
        official_model.VoxCPMConfig(**document), SimpleNamespace(vocab={}), _Vae(vae)
    )  # fmt: skip
    state = ours.state_dict()
    missing, unexpected = official.load_state_dict(state, strict=False)
    assert not missing
    assert not unexpected
    texts, counts = (5, 3), (4, 6)
    rows = 11
    tokens = torch.randint(5, 300, (2, rows))
    is_audio = torch.zeros(2, rows, dtype=torch.bool)
    is_text = torch.zeros(2, rows)
    for at, (head, count) in enumerate(zip(texts, counts, strict=True)):
        is_audio[at, head : head + count] = True
        is_text[at, :head] = 1
    patches = torch.randn(2, rows, 4, 8) * is_audio[..., None, None]
    stop = torch.randint(0, 2, (2, rows))
    recorded: dict[str, Any] = {}

    def record(x1: Any, mu: Any, cond: Any, tgt_mask: Any, progress: float) -> Any:
        recorded.update(mu=mu.view(2, rows, -1), cond=cond)
        return x1.sum()

    official.feat_decoder.compute_loss = record
    result = official(tokens, is_text, patches, is_audio.float(), is_audio.float(), None, stop)
    mine = ours.rows(tokens, is_audio, patches[is_audio])
    torch.testing.assert_close(mine.mu, recorded["mu"][is_audio], atol=3e-5, rtol=3e-4)
    loss = torch.nn.functional.cross_entropy(mine.stop, stop[is_audio])
    torch.testing.assert_close(loss, result["loss/stop"], atol=1e-5, rtol=1e-4)
    time, noisy, before = torch.rand(10), torch.randn(10, 4, 8), torch.randn(10, 4, 8)
    velocity = ours.feat_decoder.estimator(noisy, mine.mu, time, before)
    expected = official.feat_decoder.estimator(
        noisy.transpose(1, 2), mine.mu, time, before.transpose(1, 2), torch.zeros(10)
    )
    torch.testing.assert_close(velocity, expected.transpose(1, 2), atol=3e-5, rtol=3e-4)


class _Vae(torch.nn.Module):
    """Says its rates; nothing here runs it."""

    def __init__(self, facts: SimpleNamespace) -> None:
        super().__init__()
        self.chunk_size, self.sample_rate = facts.chunk_size, facts.sample_rate
