"""Trimming of quiet ends: what stays, and equality with the official function."""

import importlib.machinery
import importlib.util
import sys
import types

import numpy as np
import pytest

from edge_runtime.audio.trim import trim_silence

RATE = 16_000


@pytest.fixture
def official(monkeypatch):
    pytest.importorskip("torch")
    pytest.importorskip("librosa")
    if importlib.util.find_spec("torchaudio") is None:
        # Imported at the package's top and used by another model only.
        stub = types.ModuleType("torchaudio")
        stub.__spec__ = importlib.machinery.ModuleSpec("torchaudio", None)
        monkeypatch.setitem(sys.modules, "torchaudio", stub)
    return pytest.importorskip("voxcpm.model.voxcpm2")._trim_audio_silence_vad


def speech(rng, size):
    start, end = sorted(rng.integers(0, size + 1, 2))
    envelope = np.full(size, 10.0 ** -rng.uniform(1, 5))
    envelope[start:end] += rng.random()
    return (rng.standard_normal(size) * envelope * 0.3).astype(np.float32)


def test_trimming_equals_the_official_function(official):
    import torch

    rng = np.random.default_rng(5)
    for _ in range(150):
        audio = speech(rng, int(rng.integers(1, 60_000)))
        top_db = float(rng.choice([20, 35, 60]))
        kept = float(rng.choice([0, 50, 200]))
        expected = official(
            torch.from_numpy(audio)[None], RATE, max_silence_ms=kept, top_db=top_db
        )[0].numpy()
        trimmed = trim_silence(audio, RATE, max_silence_ms=kept, top_db=top_db)
        np.testing.assert_array_equal(trimmed, expected)


def test_long_silence_is_cut_to_about_what_is_kept():
    rng = np.random.default_rng(0)
    voice = (rng.standard_normal(RATE) * 0.2).astype(np.float32)
    silence = np.zeros(2 * RATE, np.float32)
    trimmed = trim_silence(np.concatenate([silence, voice, silence]), RATE)
    assert RATE + 0.3 * RATE < len(trimmed) < RATE + 0.4 * RATE + 2 * 2048


def test_a_low_noise_tail_is_cut_too():
    rng = np.random.default_rng(0)
    voice = (rng.standard_normal(RATE) * 0.2).astype(np.float32)
    tail = (rng.standard_normal(2 * RATE) * 0.006).astype(np.float32)
    assert len(trim_silence(np.concatenate([voice, tail]), RATE)) < 1.5 * RATE


def test_empty_silent_and_even_audio_comes_back_whole():
    for audio in (np.zeros(0, np.float32), np.zeros(9_000, np.float32)):
        assert trim_silence(audio, RATE) is audio
    tone = np.sin(np.arange(RATE, dtype=np.float32))
    np.testing.assert_array_equal(trim_silence(tone, RATE), tone)


def test_many_frames_are_taken_in_blocks_without_a_seam():
    rng = np.random.default_rng(1)
    audio = (rng.standard_normal(2048 * 512) * 1e-4).astype(np.float32)
    audio[600_000:700_000] += rng.standard_normal(100_000).astype(np.float32) * 0.3
    trimmed = trim_silence(audio, RATE, max_silence_ms=0.0)
    assert 100_000 - 4096 <= len(trimmed) <= 100_000 + 4096
