"""A KV cache in f16: half the bytes, nearly the same speech."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from device_profiles.catalog import load_profile
from device_profiles.schema import KvSection, Profile
from edge_runtime.errors import BundleError
from edge_runtime.voice import Voice


def profile(dtype: str) -> Profile:
    return load_profile("generic-x86-64").model_copy(
        update={"kv": KvSection.model_validate({"dtype": dtype})}
    )


def patches(voice: Voice, reference: tuple[np.ndarray, int] | None = None) -> np.ndarray:
    speech = voice.say(
        "Hello there.", seed=1, min_len=2, max_len=3, retry_badcase=False, reference=reference
    )
    return speech.audio


@pytest.mark.parametrize("prepare", ["never", "auto"])
def test_f16_halves_the_cache_and_stays_near(f32_bundle: Path, prepare: str) -> None:
    wide = Voice.load(f32_bundle, profile=profile("f32"), prepare=prepare)
    narrow = Voice.load(f32_bundle, profile=profile("f16"), prepare=prepare)
    assert narrow.kv_row_bytes() * 2 == wide.kv_row_bytes()
    expected, found = patches(wide), patches(narrow)
    error = np.sqrt(np.mean((expected - found) ** 2) / np.mean(expected**2))
    assert error < 0.02


def test_a_kept_voice_gives_the_same_bits_in_f16(f32_bundle: Path) -> None:
    tone = (np.sin(np.arange(16000) * 0.05).astype(np.float32) * 0.3, 16000)
    voice = Voice.load(f32_bundle, profile=profile("f16"), prepare="never")
    first, again = patches(voice, tone), patches(voice, tone)
    fresh = patches(Voice.load(f32_bundle, profile=profile("f16"), prepare="never"), tone)
    assert np.array_equal(first, again)
    assert np.array_equal(first, fresh)


def test_a_bundle_without_the_graph_is_refused_by_name(f32_bundle: Path, tmp_path: Path) -> None:
    import json
    import shutil

    old = tmp_path / "old"
    shutil.copytree(f32_bundle, old)
    (old / "graphs/lm.kv_f16.onnx").unlink()
    manifest = json.loads((old / "manifest.json").read_text())
    del manifest["files"]["graphs/lm.kv_f16.onnx"]
    manifest.pop("sha256", None)
    (old / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(BundleError, match="f16"):
        Voice.load(old, profile=profile("f16"), prepare="never")
    assert len(patches(Voice.load(old, profile=profile("f32"), prepare="never")))
