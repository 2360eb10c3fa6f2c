"""Against what the reference recorded, from 0.4 s to 60 s."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
from miocodec_cases import (
    RATES,
    SECONDS,
    TOLERANCE,
    digest,
    features_of,
    golden_path,
    read_golden,
    stretched,
    tokens_of,
    voice_of,
)

from edge_runtime.miocodec.codec import Codec

CodecOf = Callable[[int], Codec]


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("seconds", SECONDS)
def test_waveform_is_the_references(codec: CodecOf, rate: int, seconds: float) -> None:
    golden = read_golden(f"tiny-{rate}")
    ours, voice = codec(rate), voice_of(16)
    for index, (name, samples) in enumerate(
        (("audio", None), ("fitted", stretched(seconds, rate)))
    ):
        audio = ours.decode(tokens_of(seconds), voice, samples=samples)
        assert len(audio) == golden[f"lengths_{seconds}"][index]
        error = np.abs(digest(audio) - golden[f"{name}_{seconds}"]).max()
        peak = golden[f"peaks_{seconds}"][index]
        assert error <= TOLERANCE * peak, (name, error / peak)


@pytest.mark.parametrize("rate", RATES)
def test_tokens_and_voice_are_the_references(codec: CodecOf, rate: int) -> None:
    golden = read_golden(f"tiny-{rate}")
    seed = json.loads(golden["meta"].tobytes())["content_seed"]
    content, features = codec(rate).content, features_of(20.0, 48, seed)
    assert (content.tokens(features) == golden["tokens"]).all()
    assert np.abs(content.voice(features) - golden["voice"]).max() < 1e-5


def test_goldens_are_small() -> None:
    assert sum(golden_path(f"tiny-{rate}").stat().st_size for rate in RATES) < 120_000
