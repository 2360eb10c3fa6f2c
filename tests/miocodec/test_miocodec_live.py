"""Side by side with the reference, where it is installed (github.com/Aratako/MioCodec)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from miocodec_cases import RATES, TOLERANCE, features_of, tokens_of, voice_of

from edge_runtime.miocodec.codec import Codec

pytest.importorskip("torch")
pytest.importorskip("torchaudio")
pytest.importorskip("miocodec")

CodecOf = Callable[[int], Codec]


@pytest.mark.parametrize("rate", RATES)
def test_live_waveform_and_tokens(
    codec: CodecOf, codec_checkpoint: Callable[[int], Path], rate: int
) -> None:
    from miocodec_reference import content, decode, load_reference

    model, ours = load_reference(codec_checkpoint(rate)), codec(rate)
    for seconds in (0.4, 7.0, 31.0):
        tokens, voice = tokens_of(seconds, 21), voice_of(16, 22)
        expected = decode(model, tokens, voice, None)
        found = ours.decode(tokens, voice)
        assert np.abs(found - expected).max() <= TOLERANCE * np.abs(expected).max()
        features = features_of(seconds, 48, 23)
        official = content(model, features)
        assert np.abs(ours.content.latents(features) - official["latents"]).max() < 2e-5
        assert np.abs(ours.content.voice(features) - official["voice"]).max() < 2e-5
