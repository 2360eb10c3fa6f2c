"""`boardvoice prepare` and the options of the other commands that concern it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from boardvoice.main import main
from edge_runtime.prepare import prepared_bundle
from edge_runtime.prepare.prepared_bundle import PreparedBundle


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_it_prepares_once_and_again_when_asked(
    f32_bundle: Path, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, "prepare", f32_bundle)
    assert (code, out) == (0, "")
    assert ": prepared, " in err
    code, out, err = run(capsys, "prepare", f32_bundle)
    assert ": already prepared, " in err
    code, out, _ = run(capsys, "prepare", f32_bundle, "--json")
    outcome = json.loads(out)
    assert (outcome["made"], outcome["runtime"].split()[0]) == (False, "onnxruntime")
    folder = Path(outcome["folder"])
    assert folder.parent == state / "prepared"
    sizes = [file.stat().st_size for file in folder.iterdir() if file.name != "prepared.json"]
    assert outcome["bytes"] == sum(sizes)
    assert set(outcome["costs"]["lm"]) == {"session_bytes", "workspaces"}
    times = {file.name: file.stat().st_mtime_ns for file in folder.iterdir()}
    code, out, _ = run(capsys, "prepare", f32_bundle, "--force", "--json")
    assert json.loads(out)["made"]
    assert times != {file.name: file.stat().st_mtime_ns for file in folder.iterdir()}
    assert run(capsys, "prepare", f32_bundle, "-q") == (0, "", "")


def test_check_finds_a_flipped_bit_removes_everything_and_ends_with_13(
    f32_bundle: Path, state: Path, prepared: PreparedBundle, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "prepare", f32_bundle, "--check")[0] == 0
    file = prepared.folder / "lm.weights"
    times = file.stat()
    data = bytearray(file.read_bytes())
    data[-1] ^= 4
    file.write_bytes(data)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert run(capsys, "prepare", f32_bundle)[0] == 0
    code, out, err = run(capsys, "prepare", f32_bundle, "--check", "--json")
    assert code == 13
    assert "lm.weights changed since they were made" in err
    assert json.loads(out)["error"]["code"] == "prepare"
    assert not prepared.folder.exists()
    code, _, err = run(capsys, "prepare", f32_bundle, "--check")
    assert (code, ": prepared, " in err) == (0, True)


def test_failures_have_their_exit_codes_and_no_traceback(
    f32_bundle: Path, state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    assert run(capsys, "prepare", tmp_path / "none")[0] == 5
    broken = shutil.copytree(f32_bundle, tmp_path / "broken")
    (broken / "graphs/lm.weights").write_bytes(b"")
    assert run(capsys, "prepare", broken)[0] == 5
    assert run(capsys, "prepare", f32_bundle, "--profile", "toaster")[0] == 9
    with monkeypatch.context() as patch:
        patch.setenv("BOARDVOICE_MEMORY_LIMIT", "64M")
        code, _, err = run(capsys, "prepare", f32_bundle)
        assert code == 12
        assert "Preparing the bundle needs" in err
        patch.setenv("BOARDVOICE_MEMORY_LIMIT", "much")
        assert run(capsys, "prepare", f32_bundle)[0] == 2
    with monkeypatch.context() as patch:
        patch.setattr(prepared_bundle, "_START", "raise SystemExit('broken')")
        code, _, err = run(capsys, "prepare", f32_bundle)
        assert (code, "broken" in err) == (13, True)
    state_file = tmp_path / "file"
    state_file.write_text("")
    monkeypatch.setenv("BOARDVOICE_STATE", str(state_file))
    code, _, err = run(capsys, "prepare", f32_bundle)
    assert code == 13
    assert "BOARDVOICE_STATE" in err


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"model": {}}, "model: hidden: Field required"),
        ({"files": {}}, "lists no file 'graphs/lm.onnx'"),
    ],
)
def test_a_bundle_that_does_not_describe_itself_is_a_bundle_error(
    f32_bundle: Path, state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    change: dict[str, object], part: str,
) -> None:  # fmt: skip
    broken = shutil.copytree(f32_bundle, tmp_path / "broken")
    manifest = json.loads((broken / "manifest.json").read_text("utf-8"))
    manifest.pop("sha256")
    (broken / "manifest.json").write_text(json.dumps({**manifest, **change}), "utf-8")
    for words in (["prepare", broken], ["memory", broken, "--prepare"]):
        code, _, err = run(capsys, *words)
        assert code == 5
        assert part in err
    assert not (state / "prepared").exists()


@pytest.mark.parametrize(("option", "made"), [("--prepare", True), ("--no-prepare", False)])
def test_say_prepares_as_its_option_says(
    f32_bundle: Path, state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    option: str, made: bool,
) -> None:  # fmt: skip
    out = tmp_path / "out.wav"
    code, text, _ = run(
        capsys, "say", "Hi.", "--bundle", f32_bundle, "-o", out, "--max-len", 2, "--json", option
    )
    assert code == 0
    assert out.exists()
    assert (state / "prepared").exists() is made
    assert not any("prepared" in warning for warning in json.loads(text)["warnings"])


def test_say_speaks_and_warns_where_nothing_can_be_prepared(
    f32_bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    state = tmp_path / "state"
    state.write_text("")
    monkeypatch.setenv("BOARDVOICE_STATE", str(state))
    out = tmp_path / "out.wav"
    code, text, _ = run(
        capsys, "say", "Hi.", "--bundle", f32_bundle, "-o", out, "--max-len", 2, "--json",
        "--prepare",
    )  # fmt: skip
    assert code == 0
    assert out.exists()
    warnings = json.loads(text)["warnings"]
    assert sum("Not prepared for this device" in warning for warning in warnings) == 1
