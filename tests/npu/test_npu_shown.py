"""What the server's figures, the doctor, the plan and the memory report say of the NPU."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from full_size_outline import full_size_outline
from stand_in_npu import StandInNpu, add_npu_model

from boardvoice.main import main
from boardvoice.server.figures import Figures
from boardvoice.server.loaded_voice import LoadedVoice
from device_profiles.catalog import load_profile
from device_profiles.detect import BoardFacts
from device_profiles.schema import MemorySection, Profile
from edge_runtime import loader
from edge_runtime.bundle import Bundle
from edge_runtime.doctor.bundle_checks import check_golden
from edge_runtime.doctor.scene import Scene
from edge_runtime.plan.planner import Planner
from edge_runtime.plan.request import PlanRequest
from edge_runtime.voice import Voice

MakeNpu = Callable[..., StandInNpu]
ProfileOf = Callable[..., Profile]
BOARD = Path(__file__).parents[1] / "boards/trees/orange-pi-5-vendor"
GIB = 1 << 30


def metrics_text(voice: Voice) -> str:
    figures = Figures()
    loaded = LoadedVoice(lambda: voice, {}, figures)
    loaded._voice = voice
    return figures.text(loaded.gauges())


def test_the_servers_figures_show_the_npu_and_why_it_was_given_up(
    npu_bundle: Path, make_npu: MakeNpu, profile_of: ProfileOf
) -> None:
    npu = make_npu()
    voice = Voice.load(npu_bundle, profile=profile_of(), threads=1)
    voice.say("One.", seed=1, max_len=2)
    text = metrics_text(voice)
    assert 'boardvoice_npu_in_use{place="rknn"} 1\n' in text
    assert 'boardvoice_npu_evaluations_total{on="npu"} 18\n' in text
    assert "boardvoice_npu_given_up{" not in text
    npu.fault = "nan"
    voice.say("One.", seed=1, max_len=2)
    text = metrics_text(voice)
    assert 'boardvoice_npu_in_use{place="rknn"} 0\n' in text
    assert 'boardvoice_npu_given_up{reason="not-finite"} 1\n' in text
    assert 'boardvoice_npu_evaluations_total{on="cpu"} 18\n' in text
    plain = Voice.load(npu_bundle, profile=profile_of(), threads=1, flow="cpu")
    assert "npu" not in metrics_text(plain)


@pytest.mark.parametrize(("fault", "status"), [("", "ok"), ("wrong", "warn"), ("init", "")])
def test_the_doctor_tells_the_trial(
    npu_bundle: Path, make_npu: MakeNpu, tmp_path: Path, fault: str, status: str
) -> None:
    make_npu(fault=fault)
    scene = Scene.of(npu_bundle, root=BOARD, machine="aarch64", state=tmp_path)
    tried = check_golden(scene, Bundle.open(npu_bundle))
    assert tried.selftest is not None
    # Whatever the NPU does, this device can speak.
    assert tried.selftest.passed
    trial = [one for one in tried.findings if one.check == "NPU trial"]
    assert [one.status for one in trial] == ([status] if status else [])
    wishes = [one.finding for one in tried.findings if one.check == "profile's wishes"]
    assert any("does not run on rknn" in one for one in wishes) is bool(fault)
    flow = [one for one in tried.selftest.results if one.graph == "flow"]
    assert {one.provider for one in flow} == {"CPUExecutionProvider" if fault else "rknn"}
    if not fault:
        assert "dB from the CPU's values, 1.0 ms an evaluation, 1.0 ms" in trial[0].finding
        assert "librknnrt 2.5.0" in trial[0].evidence


def full_size_with_model(folder: Path, **changes: object) -> Bundle:
    outline = folder / "outline"
    outline.mkdir(parents=True)
    bundle = full_size_outline(outline)
    # Its weight files are sparse, and stay so where they lie.
    entry = {"cycles": 18_480_000, "memory_bytes": 424_000_000, **changes}
    return Bundle.open(
        add_npu_model(bundle, folder / "bundle", copy=False, **entry), verify=False
    )


def test_a_plan_counts_the_npus_cycles_and_its_memory(tmp_path: Path) -> None:
    bundle = full_size_with_model(tmp_path)
    board, request = load_profile("orange-pi-5-plus"), PlanRequest(memory_bytes=8 * GIB)
    plan = Planner(bundle, tmp_path / "state").plan(board, request)
    assert plan.placed is not None
    (flow,) = [one for one in plan.placed.components if one.name == "flow"]
    # Nine evaluations, and the condition tokens.
    assert 9 * 18.48 <= flow.ms <= 9 * 18.48 + 5
    assert (flow.place, flow.at_best) == ("rknn", True)
    assert ("npu_mcycles", 18.48) in [(key, value) for key, value, _ in plan.figures]
    assert any("1 GHz" in one for one in plan.assumed)
    (row,) = [row for row in plan.memory.rows if "NPU" in row.name]
    assert row.planned == 424_000_000
    assert not [note for note in plan.notes if "no model" in note]
    # It is the board's memory, but no part of what this process may hold.
    limited = board.model_copy(update={"memory": MemorySection(hard_mib=400)})
    assert Planner(bundle, tmp_path).plan(limited, request).memory.verdict != "refused"
    plain = Planner(bundle, tmp_path).plan(load_profile("raspberry-pi-5"), request)
    assert not [row for row in plain.memory.rows if "NPU" in row.name]
    assert plan.memory.anonymous_bytes - plain.memory.anonymous_bytes == 424_000_000


def test_a_plan_says_that_a_bundle_lacks_the_model(tmp_path: Path) -> None:
    other = Planner(full_size_with_model(tmp_path, target="rk3576"), tmp_path)
    plan = other.plan(load_profile("orange-pi-5-plus"), PlanRequest())
    assert [note for note in plan.notes if "no model for this NPU" in note]


def test_the_memory_command_tells_what_the_npu_holds(
    npu_bundle: Path, make_npu: MakeNpu, capsys: pytest.CaptureFixture[str]
) -> None:
    make_npu()
    command = ["memory", str(npu_bundle), "--flow", "rknn", "--max-len", "2", "--threads", "1"]
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["npu_bytes"] == 5 << 20
    assert main(command) == 0
    assert "The NPU holds 5.0 MiB besides." in capsys.readouterr().out


def test_a_model_with_a_flipped_bit_leaves_the_cpu(
    npu_bundle: Path, make_npu: MakeNpu, profile_of: ProfileOf, tmp_path: Path
) -> None:
    npu = make_npu()
    damaged = shutil.copytree(npu_bundle, tmp_path / "damaged")
    (file,) = damaged.rglob("*.rknn")
    data = bytearray(file.read_bytes())
    data[200] ^= 1
    file.write_bytes(data)
    voice = Voice.load(damaged, profile=profile_of(), threads=1)
    record = voice.resources.placement.npu
    assert record is not None
    assert (record.reason, npu.log) == ("bundle", [])
    assert "does not match its SHA-256" in record.detail
    # Where no NPU is wanted, it is none of this device's business.
    assert Voice.load(damaged, profile=profile_of(), threads=1, flow="cpu")
    assert Voice.load(damaged, profile=profile_of(), threads=1, verify=False)
    assert npu.log


@pytest.mark.parametrize(("soc", "fits"), [("rk3588", True), ("rk3582", True), ("rk3576", False)])
def test_a_chip_with_parts_switched_off_runs_the_whole_chips_model(
    npu_bundle: Path, make_npu: MakeNpu, profile_of: ProfileOf, soc: str, fits: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    make_npu()
    monkeypatch.setattr(loader, "detect", lambda: BoardFacts(machine="aarch64", soc=soc))
    record = Voice.load(npu_bundle, profile=profile_of(), threads=1).resources.placement.npu
    assert record is not None
    assert (record.reason, record.in_use) == (("", True) if fits else ("platform", False))


def test_a_torn_description_is_a_damaged_bundle_only_where_the_npu_is_wanted(
    npu_bundle: Path, make_npu: MakeNpu, profile_of: ProfileOf, tmp_path: Path
) -> None:
    make_npu()
    torn = shutil.copytree(npu_bundle, tmp_path / "torn")
    entry = torn / "npu/flow.json"
    entry.write_text('{"format": 2}'.ljust(entry.stat().st_size))
    voice = Voice.load(torn, profile=profile_of(), threads=1, verify=False)
    record = voice.resources.placement.npu
    assert record is not None
    assert record.reason == "bundle"
    assert "npu/flow.json" in record.detail
