"""The report that a board's owner sends: complete, and without a trace of whose it is."""

from __future__ import annotations

import getpass
import json
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from stand_in_npu import StandInNpu

from boardvoice.main import main
from edge_runtime.board_report import board_report
from edge_runtime.doctor.scene import Scene
from edge_runtime.redact import Redactor

BOARD = Path(__file__).parents[1] / "boards/trees/orange-pi-5-vendor"
SERIAL, MACHINE_ID = "d0c5f3a17b9e2468", "0f1e2d3c4b5a69788796a5b4c3d2e1f0"


@pytest.fixture
def somebody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home, a user, a host."""
    home = tmp_path / "home/ada.lovelace"
    home.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(getpass, "getuser", lambda: "ada.lovelace")
    monkeypatch.setattr(socket, "gethostname", lambda: "kitchen-pi.example.org")
    return home


def test_the_report_is_whole_and_names_nobody(
    npu_bundle: Path, make_npu: Callable[..., StandInNpu], somebody: Path, tmp_path: Path
) -> None:
    make_npu()
    bundle = shutil.copytree(npu_bundle, somebody / "voices of ada.lovelace")
    root = shutil.copytree(BOARD, somebody / "root")
    with (root / "proc/cpuinfo").open("a") as cpuinfo:
        cpuinfo.write(f"\nSerial\t\t: {SERIAL}\n")
    (root / "proc/device-tree/serial-number").write_bytes(SERIAL.encode() + b"\0")
    (root / "etc").mkdir()
    (root / "etc/machine-id").write_text(MACHINE_ID)
    (root / "etc/hostname").write_text("kitchen-pi\n")
    scene = Scene.of(bundle, root=root, machine="aarch64", state=somebody / "state")
    report = board_report(scene)
    text = json.dumps(report, ensure_ascii=False)
    names = ("ada", "lovelace", "kitchen", "example.org")
    for personal in (*names, SERIAL, MACHINE_ID, str(tmp_path)):
        assert personal not in text.lower(), personal
    assert report["detection"]["profile"] == "orange-pi-5"
    facts = {fact["name"]: fact["value"] for fact in report["detection"]["facts"]}
    assert "rockchip,rk3588s-orangepi-5" in facts["compatible"]
    assert report["npu"]["flow"]["in_use"] is True
    assert report["npu"]["entry"]["target"] == "rk3588"
    assert report["npu"]["models"][0]["toolkit"] == "2.5.0"
    assert report["bench"]["components"]["flow"]["ms"]["p50"] > 0
    assert report["bundle"]["name"] == "tiny"
    trial = [one for one in report["doctor"]["findings"] if one["check"] == "NPU trial"]
    assert [one["status"] for one in trial] == ["ok"]
    assert report["versions"]["python"]
    assert report["tune"] is None


def test_serials_addresses_and_names_are_replaced_but_not_parts_of_words(
    somebody: Path, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (root / "etc/hostname").write_text("rock\n")
    (root / "etc/machine-id").write_text(MACHINE_ID)
    redactor = Redactor.here({"BUNDLE": Path("/srv/voice")}, root)
    found = redactor.value({"rock": ["rockchip,rk3588", 5, None, "on rock at 0a:1b:2c:3d:4e:5f"]})
    assert found == {"HOST": ["rockchip,rk3588", 5, None, "on HOST at ADDRESS"]}
    assert redactor.text(f"/srv/voice/graphs, {somebody}/x, {MACHINE_ID}") == (
        "BUNDLE/graphs, HOME/x, SERIAL"
    )


def test_the_command_writes_one_file(
    f32_bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report.json"
    assert main(["board-report", str(f32_bundle), "--no-bench", "--out", str(out)]) == 0
    report = json.loads(out.read_text())
    assert report["doctor"]["can_speak"] is True
    assert report["bench"] is None
    assert report["npu"] is None
    assert str(out) in capsys.readouterr().err
    assert main(["board-report", str(f32_bundle), "--no-bench", "--profile", "rock-5b"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["npu"]["flow"]["reason"] == "no-model"
    missing = tmp_path / "no" / "folder.json"
    assert main(["board-report", str(f32_bundle), "--no-bench", "--out", str(missing)]) == 11
