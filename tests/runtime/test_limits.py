"""Limits: every run ends, at the tightest limit, and says which one that was."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from watched_backend import WatchedBackend, never

from device_profiles.catalog import load_profile
from device_profiles.schema import KvSection
from edge_runtime.bundle import Bundle
from edge_runtime.cancel import CancelToken
from edge_runtime.errors import CapacityError
from edge_runtime.noise import SeededNoise
from edge_runtime.resources import Resources
from edge_runtime.speech import SpeechMetrics, SpeechOptions
from edge_runtime.voice import Voice
from edge_runtime.voxcpm2.decode import PatchLimit
from edge_runtime.voxcpm2.model import Utterance, VoxCpm2Model
from edge_runtime.voxcpm2.prompt import VoicePrompt
from export.synthetic.maker import make_checkpoint
from export.synthetic.recipes import Recipe
from export.voxcpm2.config import VoxCpm2Config
from export.voxcpm2.exporter import export_voxcpm2

SMALL = Recipe(
    "small-limits",
    "64 KV rows",
    changes=(("max_length", 64), ("lm_config.max_position_embeddings", 96)),
)


@pytest.fixture(scope="module")
def small_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("limits")
    export_voxcpm2(make_checkpoint(folder / "small", SMALL), folder / "bundle", weights="f32")
    return folder / "bundle"


@pytest.fixture(scope="module")
def small_model(small_bundle: Path) -> VoxCpm2Model:
    return VoxCpm2Model(
        Bundle.open(small_bundle),
        Resources(WatchedBackend(never), load_profile("generic-x86-64")),
    )


@pytest.fixture(scope="module")
def endless(f32_bundle: Path) -> Voice:
    return Voice.load(f32_bundle, backend=WatchedBackend(never), verify=False)


def speak(model: VoxCpm2Model, text: str, options: SpeechOptions) -> Utterance:
    """One chunk below the planner, which never lets a text come near the last row."""
    metrics = SpeechMetrics(0, model.sample_rate, model.patch_seconds)
    utterance, audio = model.speak(
        text, VoicePrompt(), options, model.solver(options), SeededNoise(0), metrics, CancelToken()
    )
    for _ in audio:
        pass
    return utterance


@settings(max_examples=200)
@given(
    tokens=st.integers(0, 5000),
    ratio=st.floats(0.01, 20),
    max_len=st.integers(1, 5000),
    free=st.integers(0, 9000),
)
def test_the_tightest_limit_wins(tokens: int, ratio: float, max_len: int, free: int) -> None:
    options = SpeechOptions(retry_ratio=ratio, max_len=max_len)
    limits = {"cap": int(tokens * ratio + 10), "max_len": max_len, "kv_capacity": free + 1}
    limit = PatchLimit.of(options, tokens, free)
    assert limit.patches == min(limits.values()) >= 1
    assert limits[limit.reason] == limit.patches


def test_an_endless_model_is_capped_at_six_patches_per_token_and_ten(endless: Voice) -> None:
    metrics = endless.say("one two", seed=1, retry_badcase=False, steps=2).metrics
    assert metrics.stop_reason == "cap"
    assert metrics.patches == int(6 * metrics.chunks[0].tokens + 10)


@pytest.mark.parametrize("ratio", [0.3, 2.5])
def test_the_cap_follows_the_ratio(endless: Voice, ratio: float) -> None:
    metrics = endless.say(
        "one two", seed=1, retry_ratio=ratio, retry_badcase=False, steps=2
    ).metrics
    assert metrics.patches == int(ratio * metrics.chunks[0].tokens + 10)


@pytest.mark.parametrize("most", [1, 2, 7])
def test_max_len_ends_a_run(endless: Voice, most: int) -> None:
    said = endless.say("one two", seed=1, max_len=most, steps=2)
    assert said.stop_reason == "max_len"
    assert said.metrics.patches == most
    assert len(said.audio) == most * 7680


@pytest.mark.parametrize(("min_len", "patches"), [(0, 2), (1, 3), (2, 4), (5, 7)])
def test_the_stop_head_is_heard_after_min_len(
    f32_bundle: Path, min_len: int, patches: int
) -> None:
    voice = Voice.load(f32_bundle, backend=WatchedBackend(lambda runs: True), verify=False)
    said = voice.say("one two", seed=1, min_len=min_len, steps=2)
    assert said.stop_reason == "stop"
    assert said.metrics.patches == patches


def test_a_limit_below_min_len_still_ends_the_run(f32_bundle: Path) -> None:
    voice = Voice.load(f32_bundle, backend=WatchedBackend(lambda runs: True), verify=False)
    said = voice.say("one two", seed=1, min_len=4096, max_len=3, steps=2)
    assert (said.stop_reason, said.metrics.patches) == ("max_len", 3)


def test_a_run_ends_where_the_kv_rows_do(small_model: VoxCpm2Model) -> None:
    utterance = speak(small_model, "a b c d e f g h i j k l m", SpeechOptions(steps=2))
    assert utterance.stop_reason == "kv_capacity"
    # The last patch needs no row: nothing comes after it.
    assert utterance.prefix_rows + len(utterance.patches) - 1 == 64


def test_a_prefix_of_every_row_leaves_one_patch(small_model: VoxCpm2Model) -> None:
    tokens = small_model.prefixes.count_tokens
    text = next(
        text for text in ("a" + " b" * words for words in range(20, 64)) if tokens(text) == 63
    )
    utterance = speak(small_model, text, SpeechOptions(steps=2))
    assert utterance.prefix_rows == 64
    assert (utterance.stop_reason, len(utterance.patches)) == ("kv_capacity", 1)
    with pytest.raises(CapacityError, match=r"6[56] KV rows"):
        speak(small_model, f"{text} b", SpeechOptions(steps=2))


def test_the_model_ends_where_positions_do(small_bundle: Path) -> None:
    spec = Bundle.open(small_bundle).manifest.model["kv"]
    assert spec["max_rows"] == 64
    positions = VoxCpm2Config.model_validate(
        {**SMALL.document(), "max_length": 4096}
    )
    assert positions.max_rows == 96, "rope tables end there"
    document = SMALL.document()
    document["lm_config"]["no_rope"] = True
    assert VoxCpm2Config.model_validate({**document, "max_length": 4096}).max_rows == 4096


def test_the_profile_may_lower_the_rows(f32_bundle: Path) -> None:
    profile = load_profile("generic-x86-64").model_copy(update={"kv": KvSection(max_rows=48)})
    model = VoxCpm2Model(Bundle.open(f32_bundle), Resources(WatchedBackend(never), profile))
    utterance = speak(model, "a b c d e f g h i j k l m", SpeechOptions(steps=2))
    assert utterance.prefix_rows + len(utterance.patches) - 1 == 48


@settings(max_examples=20, deadline=None)
@given(
    words=st.integers(1, 12),
    ratio=st.floats(0.1, 6),
    max_len=st.integers(1, 60),
    min_len=st.integers(0, 80),
    stop_after=st.none() | st.integers(1, 40),
    cfg=st.sampled_from([0.1, 1.0, 10.0]),
)
def test_patches_never_exceed_any_limit(
    small_bundle: Path, words: int, ratio: float, max_len: int, min_len: int,
    stop_after: int | None, cfg: float,
) -> None:  # fmt: skip
    backend = WatchedBackend(lambda runs: stop_after is not None and runs >= stop_after)
    model = VoxCpm2Model(
        Bundle.open(small_bundle), Resources(backend, load_profile("generic-x86-64"))
    )
    options = SpeechOptions(
        retry_ratio=ratio, max_len=max_len, min_len=min_len, steps=2, cfg=cfg
    )
    utterance = speak(model, " ".join("abcdefghijkl"[:words]), options)
    patches = len(utterance.patches)
    assert 1 <= patches <= min(max_len, int(utterance.tokens * ratio + 10))
    assert utterance.prefix_rows + patches - 1 <= 64
    assert utterance.stop_reason != "cancelled"
    if utterance.stop_reason == "stop":
        assert patches > min_len + 1
    assert all(np.isfinite(patch).all() for patch in utterance.patches)
