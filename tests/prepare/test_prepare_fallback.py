"""When preparing fails, the bundle runs as it is, and says so once."""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest
from preparing import Mount, make

from device_profiles.catalog import load_profile
from device_profiles.schema import MemorySection, Profile
from edge_runtime.bundle import Bundle
from edge_runtime.errors import BundleError, PrepareError, UsageError
from edge_runtime.prepare import prepared_bundle
from edge_runtime.prepare.prepared_bundle import PreparedBundle
from edge_runtime.speech import Speech
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
    assert lines[0].startswith("Not prepared for this device: ")
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
    found = re.search(r"needs (\d+) MiB", caplog.records[0].getMessage())
    # What is needed is more than what there is, also in words.
    assert found
    assert int(found[1]) > 65


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


def spoil(prepared: PreparedBundle, graph: str) -> None:
    """Make a graph unreadable without its size or time showing it."""
    file = prepared.folder / f"{graph}.onnx"
    times = file.stat()
    file.write_bytes(b"\xff" * times.st_size)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


@pytest.mark.parametrize("graph", ["lm", "vae_encoder"])
def test_a_prepared_graph_that_cannot_be_loaded_runs_unprepared_and_is_made_again(
    f32_bundle: Path, state: Path, prepared: PreparedBundle, caplog: pytest.LogCaptureFixture,
    graph: str,
) -> None:  # fmt: skip
    clip = np.full(16_000, 0.1, np.float32), 16_000

    def say(voice: Voice) -> Speech:
        return voice.say("hello", reference=clip, seed=1, max_len=2)

    expected = say(Voice.load(f32_bundle, threads=1, prepare="auto")).audio
    spoil(prepared, graph)
    with caplog.at_level(logging.WARNING, "boardvoice"):
        voice = Voice.load(f32_bundle, threads=1, prepare="auto")
        said = say(voice), say(voice)
    assert len(caplog.records) == 1
    reason = caplog.records[0].getMessage()
    assert reason.startswith(f"The prepared {graph} cannot be loaded and runs unprepared: ONNX")
    assert reason.endswith("All are prepared again at the next load.")
    for speech in said:
        assert speech.metrics.warnings.count(reason) == 1
        assert np.array_equal(speech.audio, expected)
    # What it takes is no longer what was measured.
    cost = voice.resources.cost(Bundle.open(f32_bundle), f"graphs/{graph}.onnx")
    assert cost != prepared.info.costs[graph]
    again = Voice.load(f32_bundle, threads=1, prepare="auto")
    assert not again.resources.unfit
    speech = say(again)
    assert np.array_equal(speech.audio, expected)
    assert not any("prepared" in warning for warning in speech.metrics.warnings)


def test_a_graph_that_runs_unprepared_after_all_is_verified_first(
    f32_bundle: Path, state: Path, prepared: PreparedBundle, tmp_path: Path
) -> None:
    copy = shutil.copytree(f32_bundle, tmp_path / "copy")
    weights = bytearray((copy / "graphs/lm.weights").read_bytes())
    weights[100] ^= 1
    (copy / "graphs/lm.weights").write_bytes(weights)
    assert Voice.load(copy, threads=1, prepare="auto").resources.costs
    spoil(prepared, "lm")
    with pytest.raises(BundleError, match=r"lm\.weights does not match"):
        Voice.load(copy, threads=1, prepare="auto")


def test_where_nothing_can_be_noted_it_says_what_to_do(
    f32_bundle: Path, state: Path, prepared: PreparedBundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(prepared, "flow")
    monkeypatch.setattr(PreparedBundle, "discard", lambda self: False)
    voice = Voice.load(f32_bundle, threads=1, prepare="auto")
    assert "boardvoice prepare --force" in voice.resources.unfit["flow"]
