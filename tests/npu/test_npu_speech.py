"""Speech with the estimator on a stand-in NPU, and on the CPU from the evaluation on that fails."""

from __future__ import annotations

import gc
import json
import logging
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from stand_in_npu import StandInNpu, add_npu_model, rknn_file

from boardvoice.main import main
from device_profiles.flow_placement import with_place
from device_profiles.schema import Profile
from edge_runtime.errors import UsageError
from edge_runtime.memory.guard import MemoryGuard
from edge_runtime.npu import trial
from edge_runtime.voice import Voice

MakeNpu = Callable[..., StandInNpu]
ProfileOf = Callable[..., Profile]
TEXT, PATCHES, EVALUATIONS = "One, two, three.", 5, 9
# Two golden runs, before anything is spoken.
TRIAL = 2


def speak(voice: Voice, **options: object) -> tuple[np.ndarray, dict]:
    speech = voice.say(TEXT, seed=3, max_len=PATCHES, retry_badcase=False, **options)
    return speech.audio, speech.metrics.as_dict()


@pytest.fixture(scope="session")
def on_cpu(npu_bundle: Path, profile_of: ProfileOf) -> np.ndarray:
    return speak(Voice.load(npu_bundle, profile=profile_of(), threads=1, flow="cpu"))[0]


def snr_db(found: np.ndarray, wanted: np.ndarray) -> float:
    return 20 * float(np.log10(np.linalg.norm(wanted) / np.linalg.norm(found - wanted)))


def test_the_estimator_runs_on_the_npu(
    npu_bundle: Path, make_npu: MakeNpu, profile_of: ProfileOf, on_cpu: np.ndarray
) -> None:
    npu = make_npu(half=False)
    voice = Voice.load(npu_bundle, profile=profile_of(npu_cores="0_1_2"), threads=1)
    audio, metrics = speak(voice)
    assert (audio == on_cpu).all()
    assert metrics["providers"]["flow"] == "rknn"
    record = metrics["npu"]
    assert (record["in_use"], record["reason"]) == (True, "")
    assert (record["evaluations"], record["cpu_evaluations"]) == (PATCHES * EVALUATIONS, 0)
    assert record["snr_db"] > 100
    assert record["versions"]["librknnrt"] == record["versions"]["toolkit"] == "2.5.0"
    assert record["versions"]["driver"] == "0.9.8"
    assert not [note for note in metrics["warnings"] if "rknn" in note]
    assert npu.log == ["new", "init 7"]


@pytest.mark.parametrize("cfg", [1.0, 2.0])
def test_f16_on_the_npu_sounds_alike(
    npu_bundle: Path, make_npu: MakeNpu, profile_of: ProfileOf, cfg: float
) -> None:
    make_npu()
    cpu = speak(Voice.load(npu_bundle, profile=profile_of(), threads=1, flow="cpu"), cfg=cfg)[0]
    audio, metrics = speak(Voice.load(npu_bundle, profile=profile_of(), threads=1), cfg=cfg)
    assert metrics["providers"]["flow"] == "rknn"
    assert len(audio) == len(cpu)
    assert not (audio == cpu).all()
    assert snr_db(audio, cpu) > 40


@pytest.mark.parametrize(
    ("fault", "reason", "words"),
    [
        ("load", "load", "cannot read"), ("init", "init", "cannot start the model"),
        ("core", "core-mask", "does not take the cores auto"),
        ("symbols", "init", "undefined symbol"), ("set", "run", "took no inputs"),
        ("run", "run", "code -1"), ("get", "run", "gave no outputs"),
        ("nan", "not-finite", "are finite"), ("big", "range", "65504"),
        ("zeros", "zeros", "zeros"), ("shape", "outputs", ", not [2, "),
        ("wrong", "golden", "dB from the CPU's"),
    ],
)  # fmt: skip
def test_whatever_fails_at_load_leaves_it_to_the_cpu_and_says_why_once(
    npu_bundle: Path, make_npu: MakeNpu, profile_of: ProfileOf, on_cpu: np.ndarray,
    caplog: pytest.LogCaptureFixture, fault: str, reason: str, words: str,
) -> None:  # fmt: skip
    npu = make_npu(fault=fault)
    with caplog.at_level(logging.WARNING, "boardvoice"):
        voice = Voice.load(npu_bundle, profile=profile_of(), threads=1)
        told = [record.getMessage() for record in caplog.records]
        for _ in range(2):
            audio, metrics = speak(voice)
            assert (audio == on_cpu).all()
            assert metrics["npu"]["reason"] == reason
            assert metrics["providers"]["flow"] == "cpu"
            assert told[0] in metrics["warnings"]
    assert len(told) == len(caplog.records) == 1
    assert told[0].startswith("flow does not run on rknn: ")
    assert words in told[0]
    if fault != "load":
        assert npu.log[-1] == "release"


@pytest.mark.parametrize("overlapped", [False, True])
@pytest.mark.parametrize(
    ("fault", "reason"),
    [("run", "run"), ("set", "run"), ("get", "run"), ("nan", "not-finite"), ("big", "range"),
     ("zeros", "zeros"), ("shape", "outputs"), ("hang", "timeout")],
)  # fmt: skip
def test_a_run_that_fails_in_mid_sentence_is_computed_again_by_the_cpu(
    npu_bundle: Path, make_npu: MakeNpu, profile_of: ProfileOf, on_cpu: np.ndarray,
    fault: str, reason: str, overlapped: bool,
) -> None:  # fmt: skip
    # In the middle of the third patch; the trial's golden runs come first.
    at = TRIAL + 2 * EVALUATIONS + 4
    npu = make_npu(fault=fault, from_run=at, half=False)
    limit = 300 if fault == "hang" else 20_000
    profile = profile_of(npu_limit_ms=limit)
    runtime = profile.runtime.model_copy(update={"overlap_vae": overlapped})
    voice = Voice.load(
        npu_bundle, profile=profile.model_copy(update={"runtime": runtime}), threads=1
    )
    audio, metrics = speak(voice)
    # Not a sample differs: nothing was skipped, and nothing of the failed run was kept.
    assert (audio == on_cpu).all()
    record = metrics["npu"]
    assert (record["in_use"], record["reason"]) == (False, reason)
    assert record["evaluations"] == 2 * EVALUATIONS + 3
    assert record["cpu_evaluations"] == PATCHES * EVALUATIONS - record["evaluations"]
    assert metrics["providers"]["flow"] == "cpu"
    (told,) = [note for note in metrics["warnings"] if "rknn" in note]
    assert told.startswith("The CPU took flow over from rknn for good: ")
    assert ("release" in npu.log) is (fault != "hang")
    # It is not asked again, although it would answer now.
    npu.fault = ""
    runs = npu.runs
    assert (speak(voice)[0] == on_cpu).all()
    assert npu.runs == runs


def test_an_npu_that_is_slower_than_this_cpu_is_not_used(
    npu_bundle: Path, make_npu: MakeNpu, profile_of: ProfileOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_npu()
    monkeypatch.setattr(
        trial, "_milliseconds", lambda graph, run: 9.0 if graph.name == "flow" and hasattr(
            graph, "runner") else 8.0,
    )  # fmt: skip
    voice = Voice.load(npu_bundle, profile=profile_of(), threads=1)
    record = voice.resources.placement.npu
    assert record is not None
    assert (record.reason, record.npu_ms, record.cpu_ms) == ("slower", 9.0, 8.0)
    assert "9.0 ms on the NPU and 8.0 ms" in voice.resources.placement.notes[0]


def test_the_trial_times_both(npu_bundle: Path, make_npu: MakeNpu, profile_of: ProfileOf) -> None:
    npu = make_npu(timed=True)
    slow = threading.Event()
    npu.before_run = lambda: slow.wait(0.1)
    voice = Voice.load(npu_bundle, profile=profile_of(), threads=1)
    record = voice.resources.placement.npu
    assert record is not None
    assert record.reason == "slower"
    assert record.npu_ms is not None
    assert record.npu_ms >= 100
    assert record.cpu_ms is not None


@pytest.mark.parametrize(
    ("setup", "reason"),
    [
        ({"library": ""}, "no-library"), ({"library": "2.3.2"}, "old-library"),
        ({"version": "2.3.2"}, "old-library"), ({"driver": "0.8.2"}, "old-driver"),
        ({"root_driver": "0.8.2"}, "old-driver"),
    ],
)  # fmt: skip
def test_versions_that_do_not_fit_are_refused_before_a_wrong_number(
    npu_bundle: Path, make_npu: MakeNpu, profile_of: ProfileOf, setup: dict, reason: str
) -> None:
    npu = make_npu(**setup)
    voice = Voice.load(npu_bundle, profile=profile_of(), threads=1)
    record = voice.resources.placement.npu
    assert record is not None
    assert record.reason == reason
    assert record.detail.endswith(".")
    assert npu.runs == 0


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (rknn_file(version="2.6.0"), "old-library"), (rknn_file(target="rk3576"), ""),
        (rknn_file(mark="f" * 64), "stale"), (rknn_file()[:200], "model"), (b"", "model"),
    ],
)  # fmt: skip
def test_models_that_do_not_belong_here_are_refused(
    f32_bundle: Path, tmp_path: Path, make_npu: MakeNpu, profile_of: ProfileOf,
    model: bytes, reason: str,
) -> None:  # fmt: skip
    make_npu()
    bundle = add_npu_model(f32_bundle, tmp_path / "bundle", model)
    record = Voice.load(bundle, profile=profile_of(), threads=1).resources.placement.npu
    assert record is not None
    # Where the board's chip is not known, the model's is not compared.
    assert record.reason == reason


def test_a_bundle_without_a_model_and_a_machine_without_the_package_say_what_to_do(
    f32_bundle: Path, npu_bundle: Path, profile_of: ProfileOf
) -> None:
    voice = Voice.load(f32_bundle, profile=profile_of(), threads=1)
    assert "no model for the NPU" in voice.resources.placement.notes[0]
    voice = Voice.load(npu_bundle, profile=profile_of(), threads=1)
    assert "pip install rknn-toolkit-lite2" in voice.resources.placement.notes[0]


def test_what_the_package_prints_stays_out_of_the_results(
    npu_bundle: Path, make_npu: MakeNpu, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    make_npu()
    command = ["say", "One.", "--bundle", str(npu_bundle), "--flow", "rknn", "--threads", "1"]
    assert main([*command, "--max-len", "2", "--json", "-o", str(tmp_path / "out.wav")]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["providers"]["flow"] == "rknn"
    assert "necessary files" in printed.err


def test_a_model_larger_than_the_npu_can_reach_is_refused(
    f32_bundle: Path, tmp_path: Path, make_npu: MakeNpu, profile_of: ProfileOf
) -> None:
    npu = make_npu()
    bundle = add_npu_model(f32_bundle, tmp_path / "bundle", memory_bytes=5 << 30)
    record = Voice.load(bundle, profile=profile_of(), threads=1).resources.placement.npu
    assert record is not None
    assert record.reason == "memory"
    assert npu.log == []


def test_the_cpus_copy_is_given_back_under_pressure_and_loaded_again_when_needed(
    npu_bundle: Path, make_npu: MakeNpu, profile_of: ProfileOf, on_cpu: np.ndarray
) -> None:
    npu = make_npu(half=False)
    voice = Voice.load(npu_bundle, profile=profile_of(), threads=1)
    guard: MemoryGuard = voice.resources.guard
    (step,) = [one for one in guard._steps if one.name == "dropped the CPU's copy of the flow"]
    assert step.action() is True
    assert step.action() is False
    assert (speak(voice)[0] == on_cpu).all()
    npu.fault = "run"
    assert (speak(voice)[0] == on_cpu).all()
    assert voice.resources.placement.npu is not None
    assert voice.resources.placement.npu.reason == "run"
    # Now it is all there is.
    assert step.action() is False


def test_audio_is_decoded_while_the_npu_computes_the_next_patch(
    npu_bundle: Path, make_npu: MakeNpu, profile_of: ProfileOf
) -> None:
    npu = make_npu()
    profile = profile_of()
    runtime = profile.runtime.model_copy(update={"overlap_vae": True})
    voice = Voice.load(
        npu_bundle, profile=profile.model_copy(update={"runtime": runtime}), threads=1
    )
    # The first evaluation of the second patch returns only once the first patch is audio.
    heard = threading.Event()
    waited: list[bool] = []
    first = npu.runs + EVALUATIONS + 1

    def wait() -> None:
        if npu.runs == first:
            waited.append(heard.wait(60))

    npu.before_run = wait
    with voice.stream(TEXT, seed=3, max_len=PATCHES) as stream:
        for _ in stream:
            heard.set()
    assert waited == [True]


def test_the_context_is_released_with_the_voice(
    npu_bundle: Path, make_npu: MakeNpu, profile_of: ProfileOf
) -> None:
    npu = make_npu()
    voice = Voice.load(npu_bundle, profile=profile_of(), threads=1)
    speak(voice)
    assert "release" not in npu.log
    del voice
    gc.collect()
    assert npu.log[-1] == "release"


def test_the_place_can_be_named_for_one_load(
    npu_bundle: Path, make_npu: MakeNpu, profile_of: ProfileOf
) -> None:
    make_npu()
    voice = Voice.load(npu_bundle, profile="x86-vnni", threads=1, flow="rknn")
    assert voice.resources.placement.places["flow"] == "rknn"
    voice = Voice.load(npu_bundle, profile=profile_of(), threads=1, flow="cpu")
    assert voice.resources.placement.places["flow"] == "cpu"
    assert voice.resources.placement.npu is None
    with pytest.raises(UsageError, match="rknn-sim"):
        Voice.load(npu_bundle, flow="gpu")  # type: ignore[arg-type]
    flow = profile_of(npu_cores="1").flow
    assert with_place(flow, "rknn") is flow
    assert with_place(flow, "cpu").npu_cores == "auto"
