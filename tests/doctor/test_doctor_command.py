"""`boardvoice doctor` as a whole: bundles, state folders, sound, exit codes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from boardvoice.main import main
from edge_runtime.bundle import MANIFEST, BundleFile, Manifest, manifest_text, sha256_of
from edge_runtime.doctor.audio_checks import check_audio
from edge_runtime.doctor.ort_install import OrtInstall
from edge_runtime.doctor.scene import Scene
from edge_runtime.doctor.storage_checks import check_storage
from edge_runtime.golden.golden_file import GOLDEN

STATUSES = {"ok", "warn", "fail", "skipped"}


@pytest.fixture(autouse=True)
def only_what_ships(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("BOARDVOICE_PROFILE", raising=False)


@pytest.fixture
def bundle(int8_bundle: Path, tmp_path: Path) -> Path:
    return shutil.copytree(int8_bundle, tmp_path / "bundle")


def doctor(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict]:
    code = main(["doctor", "--json", *arguments])
    return code, json.loads(capsys.readouterr().out)


def statuses(report: dict) -> dict[str, str]:
    return {finding["check"]: finding["status"] for finding in report["findings"]}


def text_of(report: dict, check: str) -> str:
    return " ".join(one["finding"] for one in report["findings"] if one["check"] == check)


def rehash(folder: Path, *, without: str = "") -> None:
    manifest = Manifest.model_validate_json((folder / MANIFEST).read_text("utf-8"))
    files = {
        name: BundleFile(size=(folder / name).stat().st_size, sha256=sha256_of(folder / name))
        for name in manifest.files
        if name != without
    }
    text = manifest_text(manifest.model_copy(update={"files": files}))
    (folder / MANIFEST).write_text(text, "utf-8")


def test_a_machine_that_speaks_is_told_so(bundle: Path, capsys) -> None:
    code, report = doctor(capsys, "--bundle", str(bundle))
    assert code == 0
    assert report["can_speak"]
    assert statuses(report)["golden self-test"] == "ok"
    assert report["selftest"]["passed"]
    for finding in report["findings"]:
        assert set(finding) == {"check", "status", "finding", "evidence", "remedy"}
        assert finding["status"] in STATUSES
    assert {"profile", "Python", "packages", "ONNX Runtime", "providers", "provider cpu", "NPU",
            "governor", "swap", "memory", "state folder", "disk", "sound card", "PortAudio",
            "bundle", "prepared files"} <= set(statuses(report))  # fmt: skip


def test_people_get_a_table_and_remedies(bundle: Path, capsys) -> None:
    assert main(["doctor", "--bundle", str(bundle)]) == 0
    assert "This device can speak now." in capsys.readouterr().out


def test_without_a_bundle_a_tiny_one_is_run(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    code, report = doctor(capsys)
    assert code == 0
    assert report["selftest"]["passed"]


def test_torn_and_flipped_files_are_named_and_nothing_is_run(bundle: Path, capsys) -> None:
    with (bundle / "graphs/lm.weights").open("r+b") as stream:
        stream.truncate(1000)
    data = bytearray((bundle / "graphs/flow.onnx").read_bytes())
    data[len(data) // 2] ^= 8
    (bundle / "graphs/flow.onnx").write_bytes(data)
    code, report = doctor(capsys, "--bundle", str(bundle))
    assert code == 15
    assert not report["can_speak"]
    assert "lm.weights has 1000 bytes" in text_of(report, "bundle")
    assert "flow.onnx does not match its SHA-256" in text_of(report, "bundle")
    assert report["selftest"] is None


def test_no_bundle_at_that_place_is_a_finding(tmp_path: Path, capsys) -> None:
    code, report = doctor(capsys, "--bundle", str(tmp_path / "nowhere"))
    assert code == 15
    assert "is not a folder" in text_of(report, "bundle")


def test_numbers_that_are_not_the_exporters_keep_it_from_speaking(bundle: Path, capsys) -> None:
    file = bundle / "graphs/vae_decoder.weights"
    data = bytearray(file.read_bytes())
    data[len(data) // 4 : len(data) // 2] = bytes(len(data) // 2 - len(data) // 4)
    file.write_bytes(data)
    rehash(bundle)
    code, report = doctor(capsys, "--bundle", str(bundle))
    assert code == 15
    assert "vae_decoder" in text_of(report, "golden self-test")


def test_an_old_bundle_speaks_untested(bundle: Path, capsys) -> None:
    rehash(bundle, without=GOLDEN)
    (bundle / GOLDEN).unlink()
    code, report = doctor(capsys, "--bundle", str(bundle))
    assert code == 0
    assert statuses(report)["golden self-test"] == "skipped"
    assert "before there were golden vectors" in text_of(report, "golden self-test")


def test_prepared_files_that_changed_are_a_failure(
    bundle: Path, tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.setenv("BOARDVOICE_STATE", str(tmp_path / "state"))
    assert main(["prepare", str(bundle), "-q"]) == 0
    capsys.readouterr()
    file = next((tmp_path / "state").glob("prepared/*/flow.weights"))
    before = file.stat()
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    with file.open("r+b") as stream:
        stream.write(data)
    import os

    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    code, report = doctor(capsys, "--bundle", str(bundle))
    assert code == 15
    assert "flow.weights" in text_of(report, "prepared files")


def test_a_state_folder_that_cannot_be_written(int8_bundle: Path, tmp_path: Path) -> None:
    from edge_runtime.bundle import Bundle

    (tmp_path / "file").write_text("in the way")
    for place in (tmp_path / "file", Path("/proc/boardvoice"), Path("/sys/kernel/boardvoice")):
        scene = Scene.of(state=place, ort=OrtInstall("1.32.0"))
        found = check_storage(scene, Bundle.open(int8_bundle))[0]
        assert (found.check, found.status) == ("state folder", "warn")
        assert "BOARDVOICE_STATE" in found.remedy


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    state = tmp_path / "a" / "b"
    found = check_storage(Scene.of(state=state, ort=OrtInstall("1.32.0")), None)
    assert [finding.status for finding in found] == ["ok", "ok"]
    assert not state.exists()
    assert not list(tmp_path.iterdir())


def test_too_little_memory_keeps_it_from_speaking(bundle: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("BOARDVOICE_MEMORY_LIMIT", "50M")
    code, report = doctor(capsys, "--bundle", str(bundle))
    assert code == 15
    assert statuses(report)["memory"] == "fail"
    monkeypatch.setenv("BOARDVOICE_MEMORY_LIMIT", "much")
    assert doctor(capsys, "--bundle", str(bundle))[0] == 15


def sound(root: Path, *, device: bool) -> Path:
    (root / "proc/asound").mkdir(parents=True)
    (root / "proc/asound/cards").write_text(
        " 0 [rockchipes8388 ]: rockchip_es8388 - rockchip,es8388\n"
    )
    (root / "proc/asound/pcm").write_text("00-00: es8388 : : playback 1 : capture 1\n")
    if device:
        (root / "dev/snd").mkdir(parents=True)
        (root / "dev/snd/pcmC0D0p").write_text("")
    return root


@pytest.mark.parametrize(("device", "status"), [(True, "ok"), (False, "warn")])
def test_sound_cards_are_seen_where_they_can_be_used(
    tmp_path: Path, device: bool, status: str
) -> None:
    scene = Scene.of(
        root=sound(tmp_path, device=device), machine="x86_64", ort=OrtInstall("1.32.0")
    )
    found = check_audio(scene)[0]
    assert (found.check, found.status) == ("sound card", status)
    assert "es8388" in found.finding


def test_what_the_profile_wants_and_does_not_get_is_told(bundle: Path, tmp_path, capsys) -> None:
    file = tmp_path / "board.yaml"
    file.write_text(
        "name: board\ntitle: a board\nextends: generic-x86-64\nsoc: tegra234\n"
        "providers: [{name: cuda}, {name: cpu}]\nkv: {dtype: f16}\n"
    )
    code, report = doctor(capsys, "--bundle", str(bundle), "--profile", str(file))
    assert code == 0
    assert statuses(report)["provider cuda"] == "warn"
    assert "cuda" in text_of(report, "profile's wishes")


def test_a_root_that_is_no_folder_is_wrong_usage(tmp_path: Path, capsys) -> None:
    code, report = doctor(capsys, "--root", str(tmp_path / "none"))
    assert code == 2
    assert report["error"]["code"] == "usage"
