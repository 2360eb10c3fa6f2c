"""The fixed latent space."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install '.[train]'")
from training.demo_voice.latent_space import LatentSpace, log_mel_frames  # noqa: E402
from training.demo_voice.teacher import FRAME  # noqa: E402


def make_audio(frames: int = 120) -> object:
    torch.manual_seed(0)
    rise = torch.linspace(0, 1, frames * FRAME)
    return 0.2 * torch.randn(frames * FRAME) * torch.sin(40 * rise).square()


def test_latents_hold_no_sample_of_a_later_frame() -> None:
    audio = make_audio()
    changed = audio.clone()
    changed[50 * FRAME :] = 0
    space = LatentSpace.fit(audio, 16)
    assert torch.equal(space.encode(audio)[:50], space.encode(changed)[:50])


def test_all_components_give_the_patches_back() -> None:
    audio = make_audio(400)
    patches = log_mel_frames(audio)
    space = LatentSpace.fit(audio, patches.shape[1])
    torch.testing.assert_close(space.patches(space.project(patches)), patches, atol=1e-2, rtol=1e-3)


def test_saved_space_is_the_same(tmp_path: Path) -> None:
    audio = make_audio()
    space = LatentSpace.fit(audio, 16)
    space.save(tmp_path / "space.npz")
    assert torch.equal(LatentSpace.load(tmp_path / "space.npz").encode(audio), space.encode(audio))
