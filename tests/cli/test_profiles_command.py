"""`boardvoice profiles`: list, show, explain, schema."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from boardvoice.cli.commands import run
from device_profiles.catalog import profile_names
from device_profiles.json_schema import profile_json_schema
from device_profiles.schema import Profile

TREES = Path(__file__).parents[1] / "boards/trees"


@pytest.fixture(autouse=True)
def no_profiles_of_this_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("BOARDVOICE_PROFILE", raising=False)


def test_list_names_every_profile_and_claims_no_more_than_was_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["profiles", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name in profile_names():
        row = next(line for line in lines if f" {name} " in line)
        assert ("yes" in row) is (name == "x86-vnni")
    assert run(["profiles", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["profiles"]
    assert [one["name"] for one in listed] == profile_names()


def test_show_prints_a_file_that_says_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["profiles", "show", "jetson-orin-nano-8gb-super"]) == 0
    out = capsys.readouterr().out
    assert "soc-tegra234.yaml" in out
    path = tmp_path / "again.yaml"
    path.write_text(out)
    assert run(["profiles", "show", str(path), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)["profile"]
    assert again == yaml.safe_load(out)


def test_explain_prints_facts_where_they_were_read_and_the_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tree = str(TREES / "rock-5c-lite-vendor")
    command = ["profiles", "explain", "--root", tree, "--machine", "aarch64"]
    assert run(command) == 0
    out = capsys.readouterr().out
    for part in (
        "radxa,rock-5c, rockchip,rk3588", "/proc/device-tree (compatible)",
        "but 6 CPUs instead of 8", "Profile: rock-5c-lite", "because: board radxa,rock-5c",
        "note: Whether the flow runs on rknn is found out", "Verified on hardware: no",
    ):  # fmt: skip
        assert part in out
    assert run([*command, "--json"]) == 0
    details = json.loads(capsys.readouterr().out)
    assert details["profile"] == "rock-5c-lite"
    assert all(fact["source"] for fact in details["facts"])
    assert details["reasons"]


def test_explain_of_this_machine_ends_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["profiles", "explain"]) == 0
    assert "Profile: " in capsys.readouterr().out


def test_explain_says_when_the_environment_decided(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BOARDVOICE_PROFILE", "turing-rk1")
    assert run(["profiles", "explain"]) == 0
    out = capsys.readouterr().out
    assert "Profile: turing-rk1" in out
    assert "because: BOARDVOICE_PROFILE names it" in out


def test_schema_is_the_models(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["profiles", "schema"]) == 0
    out = capsys.readouterr().out
    assert out == profile_json_schema()
    assert set(Profile.model_fields) < set(json.loads(out)["properties"])


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["show", "nothing"], 9), (["explain", "--root", "/nowhere"], 2), ([], 2),
        (["explain", "--root", "EMPTY", "--machine", "riscv64"], 9),
    ],
)  # fmt: skip
def test_what_goes_wrong_has_a_code_and_a_word(
    command: list[str], code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [str(tmp_path) if part == "EMPTY" else part for part in command]
    assert run(["profiles", *command]) == code
    assert capsys.readouterr().err.startswith(("boardvoice: ", "usage: "))
