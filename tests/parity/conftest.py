"""Voices that the parity tests share: each recipe is made, exported and loaded once per run."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from parity_cases import Clips
from parity_ours import OurVoice

OurVoices = Callable[[str], OurVoice]


@pytest.fixture(scope="session")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Clips:
    return Clips(tmp_path_factory.mktemp("clips"))


@pytest.fixture(scope="session")
def ours(tmp_path_factory: pytest.TempPathFactory, clips: Clips) -> OurVoices:
    """Our voice of a recipe."""
    return cache(lambda name: OurVoice(name, tmp_path_factory.mktemp(name), clips))


@pytest.fixture(scope="session")
def officials(ours: OurVoices, clips: Clips) -> Callable[[str], Any]:
    """The official model of a recipe, on the same checkpoint."""
    from official import OfficialVoice

    return cache(lambda name: OfficialVoice(ours(name).checkpoint, clips))
