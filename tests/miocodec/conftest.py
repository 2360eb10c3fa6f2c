"""Tiny codecs that the tests share: made, exported and loaded once per run."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from edge_runtime.miocodec.codec import Codec
from export.miocodec.exporter import export_miocodec
from export.synthetic.miocodec import make_miocodec

MakeCodec = Callable[..., Path]


@pytest.fixture(scope="session")
def codec_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    folder = tmp_path_factory.mktemp("codec_checkpoints")
    return cache(lambda rate: make_miocodec(folder / str(rate), rate=rate))


@pytest.fixture(scope="session")
def codec_bundle(
    tmp_path_factory: pytest.TempPathFactory, codec_checkpoint: Callable[[int], Path]
) -> MakeCodec:
    """``codec_bundle(rate, weights)``; each is made once. Do not change what it returns."""
    folder = tmp_path_factory.mktemp("codecs")

    def make(rate: int = 44100, weights: str = "f32") -> Path:
        out = folder / f"{rate}-{weights}"
        if not out.exists():
            export_miocodec(codec_checkpoint(rate), out, weights=weights, name="tiny codec")
        return out

    return make


@pytest.fixture(scope="session")
def codec(codec_bundle: MakeCodec) -> Callable[[int], Codec]:
    """A loaded f32 codec by its rate."""
    return cache(lambda rate: Codec.load(codec_bundle(rate), threads=1))
