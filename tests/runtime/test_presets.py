"""Presets: what they run, what overrides them, and that results say which it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from watched_backend import WatchedBackend, never

from edge_runtime.errors import UsageError
from edge_runtime.presets import PRESETS
from edge_runtime.speech import SpeechOptions
from edge_runtime.voice import Voice
from edge_runtime.voxcpm2.flow import Schedule


def test_quality_is_the_official_solver() -> None:
    assert PRESETS["quality"].steps == 10
    assert not PRESETS["quality"].even
    assert SpeechOptions().preset == "quality"
    assert SpeechOptions().euler_steps == 10


def test_each_preset_costs_less_than_the_one_before() -> None:
    steps = [PRESETS[name].steps for name in ("quality", "balanced", "fast")]
    assert steps == sorted(steps, reverse=True)
    assert len(set(steps)) == len(PRESETS)


@pytest.mark.parametrize("name", list(PRESETS))
def test_a_preset_runs_its_evaluations_and_the_result_names_it(
    f32_bundle: Path, name: str
) -> None:
    backend = WatchedBackend(never)
    voice = Voice.load(f32_bundle, backend=backend, verify=False)
    metrics = voice.say("hello", seed=1, max_len=3, preset=name).metrics
    assert backend.watch.runs["flow"] == 3 * (PRESETS[name].steps - 1)
    found = metrics.as_dict()
    assert (found["preset"], found["steps"], found["cfg"]) == (name, PRESETS[name].steps, 2.0)


def test_steps_and_guidance_given_override_the_preset(f32_bundle: Path) -> None:
    backend = WatchedBackend(never)
    voice = Voice.load(f32_bundle, backend=backend, verify=False)
    metrics = voice.say("hello", seed=1, max_len=2, preset="fast", steps=4, cfg=1.0).metrics
    assert backend.watch.runs["flow"] == 2 * 3
    assert set(backend.watch.batches) == {1}
    found = metrics.as_dict()
    assert (found["preset"], found["steps"], found["cfg"]) == ("fast", 4, 1.0)


def test_another_preset_of_given_options_brings_its_own_steps() -> None:
    assert replace(SpeechOptions(), preset="fast").euler_steps == PRESETS["fast"].steps
    assert replace(SpeechOptions(steps=9), preset="fast").euler_steps == 9


def test_presets_speak_differently(f32_voice: Voice) -> None:
    said = [f32_voice.say("hello", seed=1, max_len=2, preset=name).audio for name in PRESETS]
    assert not np.array_equal(said[0], said[1])
    assert not np.array_equal(said[1], said[2])
    # The same number of steps on another schedule is something else too.
    steps = PRESETS["fast"].steps
    official = f32_voice.say("hello", seed=1, max_len=2, steps=steps).audio
    assert not np.array_equal(official, said[2])


@pytest.mark.parametrize("preset", ["best", "", None, 3, ["fast"]])
def test_an_unknown_preset_is_refused(preset: object) -> None:
    with pytest.raises(UsageError, match=r"preset is .*") as caught:
        SpeechOptions(preset=preset)  # type: ignore[arg-type]
    assert "quality, balanced, fast" in caught.value.remedy


@given(steps=st.integers(2, 100))
def test_an_even_schedule_goes_from_noise_to_latent(steps: int) -> None:
    schedule = Schedule.even(steps)
    assert len(schedule.t) == len(schedule.dt) == steps
    assert schedule.zero_steps == 1
    assert schedule.t[0] == 1
    assert (np.diff(schedule.t) < 0).all()
    np.testing.assert_allclose(schedule.dt.sum(dtype=np.float64), 1, atol=1e-5)
    # What is zero by definition lasts no longer than with ten steps.
    np.testing.assert_allclose(schedule.dt[0], Schedule.of(10).dt[0], rtol=1e-5)
    np.testing.assert_allclose(schedule.dt[1:], schedule.dt[-1], rtol=1e-3)
