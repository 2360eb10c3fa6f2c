"""What a profile asks for and this version does not have is said, in the log and in the result."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from device_profiles.catalog import load_profile
from device_profiles.hardware import RequiresSection
from device_profiles.layers import ProfileStore
from device_profiles.probes.cpu import usable_cpus
from device_profiles.schema import RuntimeSection
from edge_runtime.backends.ort import session_options
from edge_runtime.backends.session_settings import SessionSettings
from edge_runtime.bundle import Bundle
from edge_runtime.loader import engine_cache, place_graphs
from edge_runtime.prepare.key import PreparationKey
from edge_runtime.runtime_choice import profile_choice
from edge_runtime.voice import Voice

TREES = Path(__file__).parents[1] / "boards/trees"


@pytest.mark.parametrize("name", ProfileStore.shipped().names())
def test_every_wish_that_is_not_fulfilled_is_noted(name: str) -> None:
    profile = load_profile(name).model_copy(update={"requires": RequiresSection()})
    plain = profile.flow.place == "cpu" and len(profile.providers) == 1
    plan = place_graphs(profile, engine_cache(profile))
    assert plan.only_cpu, "this build of ONNX Runtime has no other provider"
    # Whether the NPU works is found out when a bundle is loaded.
    assert bool(plan.notes or plan.npu) is not plain
    assert all(name in note for note in plan.notes)


def test_settings_reach_every_session() -> None:
    settings = SessionSettings(arena=False, kleidiai=False)
    options = session_options(1, spinning=False, settings=settings)
    assert not options.enable_cpu_mem_arena
    assert options.get_session_config_entry("mlas.disable_kleidiai") == "1"
    plain = session_options(1, spinning=False)
    assert plain.enable_cpu_mem_arena
    with pytest.raises(RuntimeError):
        plain.get_session_config_entry("mlas.disable_kleidiai")


def test_prepared_files_of_other_settings_are_others(f32_bundle: Path) -> None:
    bundle = Bundle.open(f32_bundle, verify=False)
    keys = [
        PreparationKey.of(bundle, settings=SessionSettings(arena, kleidiai))
        for arena, kleidiai in [(True, True), (True, False), (False, True)]
    ]
    assert keys[0] == PreparationKey.of(bundle)
    assert len({key.folder_name for key in keys}) == 3


def test_the_settings_of_a_profile_change_no_sample(f32_bundle: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("name: mine\ntitle: Mine\nruntime: {arena: false, kleidiai: false}\n")
    plain = Voice.load(f32_bundle, profile="x86-vnni", threads=2)
    for prepare in ("never", "auto"):
        voice = Voice.load(f32_bundle, profile=str(path), threads=2, prepare=prepare)
        assert not voice.resources.fallback
        first = plain.say("One.", seed=3, max_len=3).audio
        second = voice.say("One.", seed=3, max_len=3).audio
        assert (first == second).all()


def test_threads_beyond_the_cpus_of_this_process_are_not_started(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cpus = usable_cpus()
    profile = load_profile("raspberry-pi-5")
    many = profile.model_copy(update={"runtime": RuntimeSection(threads=cpus + 3)})
    with caplog.at_level(logging.WARNING, "boardvoice"):
        choice = profile_choice(many)
    assert choice.threads == cpus
    assert f"{cpus} threads instead of {cpus + 3}" in choice.note
    assert choice.note in caplog.text
    assert profile_choice(many, cpus + 3).threads == cpus + 3


def test_a_quota_below_the_count_of_cpus_bounds_the_threads(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/\n")
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/cpu.max").write_text("50000 100000\n")
    choice = profile_choice(load_profile("x86-vnni"), root=tmp_path)
    assert (choice.threads, choice.note) == (1, "")


def test_the_fallback_shows_once_in_the_log_and_in_every_result(
    f32_bundle: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "boardvoice"):
        voice = Voice.load(f32_bundle, profile="rock-5b", threads=1)
    notes = [record.getMessage() for record in caplog.records]
    assert len(notes) == 1
    assert "flow does not run on rknn: The bundle has no model for the NPU." in notes[0]
    for _ in range(2):
        speech = voice.say("One.", seed=1, max_len=2)
        assert notes[0] in speech.metrics.warnings


def test_a_profile_without_wishes_leaves_no_note(
    f32_bundle: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "boardvoice"):
        voice = Voice.load(f32_bundle, profile="x86-vnni", threads=1)
    assert voice.resources.notes == ()
    assert not caplog.records


def test_the_same_samples_come_out_whatever_was_asked_for(f32_bundle: Path) -> None:
    plain = Voice.load(f32_bundle, profile="x86-vnni", threads=1)
    wishful = Voice.load(f32_bundle, profile="rock-5b", threads=1)
    first = plain.say("One.", seed=3, max_len=3).audio
    second = wishful.say("One.", seed=3, max_len=3).audio
    assert (first == second).all()
