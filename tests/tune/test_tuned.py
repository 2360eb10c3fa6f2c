"""What is kept, when it is used, and what overrules it."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from watched_backend import WatchedBackend

from boardvoice.main import main
from device_profiles.catalog import load_profile
from device_profiles.schema import Profile, RuntimeSection
from edge_runtime.affinity import on_cores, pinned, why_not
from edge_runtime.bundle import Bundle
from edge_runtime.errors import OutputError
from edge_runtime.prepare.key import PreparationKey
from edge_runtime.runtime_choice import RuntimeChoice, profile_choice
from edge_runtime.tune.tuned import (
    Tuned,
    TunedRuntime,
    find_tuned,
    forget_tuned,
    keep_tuned,
    usable_cores,
)
from edge_runtime.voice import Voice

CPU = min(os.sched_getaffinity(0))
FOUND = TunedRuntime(threads=3, spinning=True, overlap_vae=True, cores=(CPU,))


def tuned(key: PreparationKey, **changes: object) -> Tuned:
    values: dict[str, object] = {
        "taken": "2026-12-01", "bundle": key.bundle, "cpu": key.cpu, "runtime": key.runtime,
        "kv_dtype": key.kv_dtype, "cpus": usable_cores(),
        "start": TunedRuntime(threads=2, spinning=False, overlap_vae=False),
        "choice": FOUND, "trials": (),
    }  # fmt: skip
    return Tuned.model_validate(values | changes)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BOARDVOICE_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def key(f32_bundle: Path) -> PreparationKey:
    return PreparationKey.of(Bundle.open(f32_bundle, verify=False))


def runtime(bundle: Path, **options: object) -> RuntimeChoice:
    return Voice.load(bundle, verify=False, **options).resources.runtime  # type: ignore[arg-type]


def test_what_is_kept_is_found_and_forgotten(state: Path, key: PreparationKey) -> None:
    assert find_tuned(key, state) is None
    file = keep_tuned(tuned(key), key, state)
    assert find_tuned(key, state) == tuned(key)
    assert [entry.name for entry in file.parent.iterdir()] == [file.name]
    assert forget_tuned(key, state)
    assert find_tuned(key, state) is None
    assert not forget_tuned(key, state)


@pytest.mark.parametrize(
    "change",
    [{"bundle": "x"}, {"cpu": "x"}, {"runtime": "x"}, {"kv_dtype": "f16"}, {"cpus": (77,)}],
)
def test_another_bundle_device_or_version_is_not_tuned(
    state: Path, key: PreparationKey, change: dict[str, object]
) -> None:
    keep_tuned(tuned(key, **change), key, state)
    assert find_tuned(key, state) is None


@pytest.mark.parametrize("text", ["", "{}", "\xff", '{"format": 2}'])
def test_a_file_that_is_none_is_as_good_as_no_file(
    state: Path, key: PreparationKey, text: str
) -> None:
    keep_tuned(tuned(key), key, state).write_bytes(text.encode("latin-1"))
    assert find_tuned(key, state) is None


def test_a_state_folder_that_cannot_be_written_is_an_error(
    tmp_path: Path, key: PreparationKey
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="BOARDVOICE_STATE"):
        keep_tuned(tuned(key), key, tmp_path / "file")


def test_loading_uses_what_was_found(
    state: Path, key: PreparationKey, f32_bundle: Path
) -> None:  # fmt: skip
    before = runtime(f32_bundle)
    assert before.source == "profile"
    keep_tuned(tuned(key), key, state)
    voice = Voice.load(f32_bundle, verify=False)
    assert voice.resources.runtime == FOUND.choice()
    run = voice.say("Hello.", seed=1, max_len=2, retry_badcase=False)
    assert run.metrics.as_dict()["runtime"] == {
        "threads": 3, "spinning": True, "overlap_vae": True, "cores": [CPU],
        "source": "tuned", "note": ""
    }  # fmt: skip
    assert runtime(f32_bundle, tuned=False) == before


def test_threads_and_profiles_that_say_how_to_run_overrule_it(
    state: Path, key: PreparationKey, f32_bundle: Path
) -> None:
    keep_tuned(tuned(key), key, state)
    assert runtime(f32_bundle, threads=1) == RuntimeChoice(
        1, overlap_vae=len(usable_cores()) > 1, source="options"
    )
    own = Profile(name="p", title="P", runtime=RuntimeSection(spinning=True))
    assert runtime(f32_bundle, profile=own).source == "profile"
    silent = Profile(name="p", title="P")
    assert runtime(f32_bundle, profile=silent).source == "tuned"
    assert runtime(f32_bundle, backend=WatchedBackend()).source == "profile"


def test_tuned_and_untuned_audio_are_the_same(
    state: Path, key: PreparationKey, f32_bundle: Path
) -> None:
    def audio() -> bytes:
        voice = Voice.load(f32_bundle, verify=False)
        return voice.say("Hello.", seed=1, max_len=3, retry_badcase=False).audio.tobytes()

    before = audio()
    keep_tuned(
        tuned(key, choice=TunedRuntime(threads=1, spinning=True, overlap_vae=False)), key, state
    )
    assert audio() == before


def test_cores_that_are_gone_are_said_to_be(
    state: Path, key: PreparationKey, f32_bundle: Path, caplog: pytest.LogCaptureFixture
) -> None:
    choice = TunedRuntime(threads=1, spinning=False, overlap_vae=False, cores=(4000,))
    keep_tuned(tuned(key, choice=choice), key, state)
    with caplog.at_level(logging.WARNING):
        voice = Voice.load(f32_bundle, verify=False)
    assert voice.resources.runtime.cores == ()
    speech = voice.say("Hello.", seed=1, max_len=1, retry_badcase=False)
    note = "Runs on any core instead of 4000: this process may not use CPU 4000."
    assert note in speech.metrics.warnings
    assert [record.getMessage() for record in caplog.records].count(note) == 1


def test_a_profile_may_name_cores(tmp_path: Path) -> None:
    def choice(text: str) -> RuntimeChoice:
        file = tmp_path / "p.yaml"
        file.write_text(f"name: p\ntitle: P\nruntime: {text}\n")
        return profile_choice(load_profile(str(file)), root=tmp_path)

    every = len(usable_cores())
    assert choice("{cores: all}") == RuntimeChoice(every, overlap_vae=every > 1)
    assert choice(f"{{cores: [{CPU}]}}") == RuntimeChoice(1, cores=(CPU,))
    assert choice(f"{{cores: [{CPU}], threads: 2}}") == RuntimeChoice(2, cores=(CPU,))
    # The tree has no capacities: all are big.
    assert choice("{cores: big}") == RuntimeChoice(every, overlap_vae=every > 1)
    cores = usable_cores()
    for cpu in cores:
        folder = tmp_path / f"sys/devices/system/cpu/cpu{cpu}"
        folder.mkdir(parents=True)
        (folder / "cpu_capacity").write_text("1024" if cpu == CPU else "300")
    expected = RuntimeChoice(1, cores=(CPU,)) if every > 1 else RuntimeChoice(1, overlap_vae=False)
    assert choice("{cores: big}") == expected


def test_a_block_runs_on_its_cores_and_so_do_threads_that_it_starts() -> None:
    before = os.sched_getaffinity(0)
    seen: list[set[int]] = []
    with on_cores((CPU,)):
        seen.append(os.sched_getaffinity(0))
        thread = threading.Thread(target=lambda: seen.append(os.sched_getaffinity(0)))
        thread.start()
        thread.join()
    assert seen == [{CPU}, {CPU}]
    assert os.sched_getaffinity(0) == before
    with pytest.raises(ZeroDivisionError), on_cores((CPU,)):
        raise ZeroDivisionError
    assert os.sched_getaffinity(0) == before


def test_a_reader_between_pinned_items_is_not_pinned() -> None:
    before = os.sched_getaffinity(0)
    closed = []

    def items() -> Iterator[set[int]]:
        try:
            while True:
                yield os.sched_getaffinity(0)
        finally:
            closed.append(True)

    found = pinned(items(), (CPU,))
    assert next(found) == {CPU}
    assert os.sched_getaffinity(0) == before
    found.close()
    assert closed == [True]
    assert list(pinned(iter((1, 2)), (CPU,))) == [1, 2]
    assert list(pinned(iter((1, 2)), ())) == [1, 2]


def test_a_pool_runs_where_it_was_told_to(
    state: Path, key: PreparationKey, f32_bundle: Path
) -> None:
    def masks() -> set[tuple[int, ...]]:
        found = set()
        for task in os.listdir("/proc/self/task"):
            found.add(tuple(sorted(os.sched_getaffinity(int(task)))))
        return found

    before = set(os.listdir("/proc/self/task"))
    keep_tuned(tuned(key), key, state)
    voice = Voice.load(f32_bundle, verify=False)
    new = set(os.listdir("/proc/self/task")) - before
    assert new
    assert all(os.sched_getaffinity(int(task)) == {CPU} for task in new)
    assert masks() >= {(CPU,)}
    del voice


def test_where_a_thread_cannot_run_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert why_not(()) == why_not((CPU,)) == ""
    assert "CPU 4000, 4001" in why_not((CPU, 4000, 4001))
    monkeypatch.delattr(os, "sched_setaffinity")
    assert "no CPU affinity" in why_not((CPU,))


def test_the_command_tunes_shows_and_forgets(
    state: Path, f32_bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["tune", str(f32_bundle), *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    assert run("--show")[2].endswith("was not tuned on this device, as it is now.\n")
    code, out, err = run("--rounds", "1", "--patches", "2", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    entry = found["bundles"][str(f32_bundle)]
    assert found["fastest"] == str(f32_bundle)
    assert Tuned.model_validate({k: v for k, v in entry.items() if k != "file"}).trials
    assert json.loads(Path(entry["file"]).read_text("utf-8"))["choice"] == entry["choice"]
    assert runtime(f32_bundle).source == "tuned"
    code, out, err = run("--show")
    assert (code, err) == (0, "")
    assert "spinning" in out
    assert run("--forget")[2].endswith("forgotten.\n")
    assert run("--forget")[2].endswith("nothing to forget.\n")
    assert runtime(f32_bundle).source == "profile"


def test_a_state_folder_that_cannot_be_written_is_refused_before_anything_is_measured(
    f32_bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    (tmp_path / "state").write_text("")
    monkeypatch.setenv("BOARDVOICE_STATE", str(tmp_path / "state"))
    monkeypatch.setattr("boardvoice.cli.tune.tune_bundle", lambda *_, **__: 1 / 0)
    assert main(["tune", str(f32_bundle)]) == 11
    assert "BOARDVOICE_STATE" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["--rounds", "0"], ["--threads", "2"], ["--patches", "1"], ["--show", "--forget"]]
)
def test_what_makes_no_sense_is_a_usage_error(f32_bundle: Path, arguments: list[str]) -> None:
    assert main(["tune", str(f32_bundle), *arguments]) == 2
