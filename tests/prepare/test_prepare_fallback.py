"""When preparing fails, the bundle runs as it is, and says so once."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from preparing import Mount, make

from device_profiles.catalog import load_profile
from device_profiles.schema import MemorySection, Profile
from edge_runtime.errors import PrepareError, UsageError
from edge_runtime.prepare import prepared_bundle
from edge_runtime.prepare.prepared_bundle import PreparedBundle
from edge_runtime.voice import Voice

START = prepared_bundle._START


def profile(**section: object) -> Profile:
    return load_profile("generic-x86-64").model_copy(update={"memory": MemorySection(**section)})


def falls_back(
    bundle: Path, caplog: pytest.LogCaptureFixture, part: str, **options: object
) -> None:
    """Load, and expect one line in the log and the reason in the metrics of every run."""
    with caplog.at_level(logging.WARNING, "boardvoice"):
        voice = Voice.load(bundle, threads=1, prepare="auto", **options)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 1
    assert lines[0].startswith("The bundle runs without prepared weights: ")
    assert part in lines[0]
    for _ in range(2):
        metrics = voice.say("hello", seed=1, max_len=1).metrics
        assert any(
            warning.startswith("Not prepared for this device: ") and part in warning
            for warning in metrics.warnings
        )
    assert len(caplog.records) == 1


def nothing_half_done(state: Path) -> None:
    parent = state / "prepared"
    left = [name for name in os.listdir(parent) if not name.endswith(".lock")]
    assert left == []


@pytest.mark.parametrize(
    ("code", "part"),
    [
        ("import sys; sys.exit('broken worker')", "failed: broken worker"),
        ("", "failed: exit status 0"),
        ("import os; os._exit(3)", "failed: exit status 3"),
        ("import os; os.kill(os.getpid(), 9)", "failed: exit status -9"),
        ("print('{\"graph\": 3}'); print('[]'); print('{')", "failed"),
        ("import sys; sys.stdin.close(); raise MemoryError('none')", "MemoryError: none"),
    ],
)
def test_a_worker_that_fails(
    f32_bundle: Path, state: Path, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch, code: str, part: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(prepared_bundle, "_START", code)
    falls_back(f32_bundle, caplog, part)
    nothing_half_done(state)
    monkeypatch.undo()
    make(f32_bundle, state)


@pytest.mark.parametrize("after", [1, 4, 6])
def test_a_worker_that_is_killed_in_the_middle(
    f32_bundle: Path, state: Path, caplog: pytest.LogCaptureFixture, after: int
) -> None:
    def kill(graph: str, done: int, total: int) -> None:
        if done == after:
            (worker,) = psutil.Process().children()
            worker.kill()

    falls_back(f32_bundle, caplog, "failed: exit status -9", on_prepare=kill)
    nothing_half_done(state)


def test_output_of_libraries_neither_stops_nor_confuses_the_worker(
    f32_bundle: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = "import sys\nprint('hello')\nsys.stderr.write('warning\\n' * 100_000)\n"
    monkeypatch.setattr(prepared_bundle, "_START", noise + START)
    assert len(make(f32_bundle, state).info.costs) == 7


def test_the_worker_imports_what_this_process_does_wherever_it_was_started(
    f32_bundle: Path, state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "numpy", "edge_runtime", "onnxruntime"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong module')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "none"))
    make(f32_bundle.resolve(), state)


def test_an_error_of_the_callers_progress_function_is_the_callers(
    f32_bundle: Path, state: Path
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("theirs")

    with pytest.raises(ValueError, match="theirs"):
        Voice.load(f32_bundle, threads=1, prepare="auto", on_prepare=fail)
    nothing_half_done(state)
    assert not psutil.Process().children()


def a_file_in_its_place(state: Path, mount: Callable[[], Mount]) -> Path:
    state.write_text("")
    return state


def a_file_in_the_way(state: Path, mount: Callable[[], Mount]) -> Path:
    state.mkdir()
    (state / "prepared").write_text("")
    return state


def a_read_only_disk(state: Path, mount: Callable[[], Mount]) -> Path:
    return mount()("ro,size=1m")


def nowhere(state: Path, mount: Callable[[], Mount]) -> Path:
    return Path("/proc/nowhere")


@pytest.mark.parametrize(
    "place", [a_file_in_its_place, a_file_in_the_way, a_read_only_disk, nowhere]
)
def test_a_state_folder_that_cannot_be_written(
    f32_bundle: Path, state: Path, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, place,
) -> None:  # fmt: skip
    folder = place(state, lambda: request.getfixturevalue("mount"))
    monkeypatch.setenv("BOARDVOICE_STATE", str(folder))
    falls_back(f32_bundle, caplog, "BOARDVOICE_STATE")


def test_a_disk_that_is_too_small_is_found_before_anything_is_written(
    f32_bundle: Path, state: Path, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    real = shutil.disk_usage
    monkeypatch.setattr(
        shutil, "disk_usage", lambda path: real(path)._replace(free=65 << 20)
    )
    falls_back(f32_bundle, caplog, "65 MiB are free", on_prepare=lambda *_: 1 / 0)
    nothing_half_done(state)


def test_a_disk_that_fills_up_meanwhile(
    f32_bundle: Path, mount: Mount, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    state = mount("size=1m")
    real = shutil.disk_usage
    monkeypatch.setattr(shutil, "disk_usage", lambda path: real(path)._replace(free=1 << 40))
    monkeypatch.setenv("BOARDVOICE_STATE", str(state))
    falls_back(f32_bundle, caplog, "")
    nothing_half_done(state)


def test_too_little_memory_to_prepare(
    f32_bundle: Path, state: Path, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(prepared_bundle, "_PACKING_BYTES", 1 << 42)
    falls_back(f32_bundle, caplog, "Preparing the bundle needs")
    nothing_half_done(state)


def test_without_the_option_the_profile_decides(f32_bundle: Path, state: Path) -> None:
    for section, reason in (
        ({}, "its weights take less than 64 MiB"),
        ({"prepare": "never", "prepare_from_mib": 0}, "preparing is switched off"),
    ):
        voice = Voice.load(f32_bundle, threads=1, profile=profile(**section))
        assert (voice.resources.not_prepared, voice.resources.fallback) == (reason, False)
        warnings = voice.say("hello", seed=1, max_len=1).metrics.warnings
        assert not any("prepared" in warning for warning in warnings)
    assert not state.exists()
    voice = Voice.load(f32_bundle, threads=1, profile=profile(prepare_from_mib=0))
    assert voice.resources.costs
    assert state.is_dir()


def test_the_option_goes_before_the_profile(
    f32_bundle: Path, state: Path, prepared: PreparedBundle
) -> None:
    never = Voice.load(
        f32_bundle, threads=1, prepare="never", profile=profile(prepare_from_mib=0)
    )
    assert not never.resources.costs
    always = Voice.load(f32_bundle, threads=1, prepare="auto", profile=profile(prepare="never"))
    assert always.resources.costs
    with pytest.raises(UsageError, match="prepare is 'sometimes'"):
        Voice.load(f32_bundle, prepare="sometimes")


def test_preparing_itself_raises_what_loading_forgives(
    f32_bundle: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepared_bundle, "_START", "raise SystemExit('broken')")
    with pytest.raises(PrepareError, match="broken") as caught:
        make(f32_bundle, state)
    assert caught.value.exit_code == 13
