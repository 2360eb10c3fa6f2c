"""A KV cache in f16 or int8: fewer bytes, nearly the same speech."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from kv_types import INT8, kv_profile, needs_int8

from edge_runtime.errors import BundleError
from edge_runtime.voice import Voice


def patches(voice: Voice, reference: tuple[np.ndarray, int] | None = None) -> np.ndarray:
    speech = voice.say(
        "Hello there.", seed=1, min_len=2, max_len=3, retry_badcase=False, reference=reference
    )
    return speech.audio


@pytest.mark.parametrize(
    ("dtype", "share", "most"), [("f16", 2, 0.02), pytest.param("int8", 4, 0.2, marks=needs_int8)]
)
@pytest.mark.parametrize("prepare", ["never", "auto"])
def test_the_cache_shrinks_and_speech_stays_near(
    make_bundle, prepare: str, dtype: str, share: int, most: float
) -> None:
    bundle = make_bundle("tiny", "f32", kv=dtype)
    wide = Voice.load(bundle, profile=kv_profile("f32"), prepare=prepare)
    narrow = Voice.load(bundle, profile=kv_profile(dtype), prepare=prepare)
    assert narrow.kv_row_bytes() * share == wide.kv_row_bytes()
    expected, found = patches(wide), patches(narrow)
    error = np.sqrt(np.mean((expected - found) ** 2) / np.mean(expected**2))
    assert 0 < error < most


@pytest.mark.parametrize("dtype", ["f16", INT8])
def test_a_kept_voice_gives_the_same_bits(make_bundle, dtype: str) -> None:
    bundle = make_bundle("tiny", "f32", kv=dtype)
    tone = (np.sin(np.arange(16000) * 0.05).astype(np.float32) * 0.3, 16000)
    voice = Voice.load(bundle, profile=kv_profile(dtype), prepare="never")
    first, again = patches(voice, tone), patches(voice, tone)
    fresh = patches(Voice.load(bundle, profile=kv_profile(dtype), prepare="never"), tone)
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
        Voice.load(old, profile=kv_profile("f16"), prepare="never")
    assert len(patches(Voice.load(old, profile=kv_profile("f32"), prepare="never")))
