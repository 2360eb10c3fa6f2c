"""`boardvoice memory`, and limits as the command line takes them."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
from pathlib import Path

import numpy as np
import pytest
import soundfile

from boardvoice.cli.memory_plot import write_plot
from boardvoice.main import main
from edge_runtime.errors import OutputError
from edge_runtime.memory.guard import GuardEvent
from edge_runtime.memory.watch import MemorySample

PNG = b"\x89PNG"
needs_matplotlib = pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed"
)


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize("prepare", ["--prepare", "--no-prepare"])
def test_the_report_adds_up(
    f32_bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], prepare: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("BOARDVOICE_STATE", str(tmp_path / "state"))
    reference = tmp_path / "voice.wav"
    soundfile.write(reference, np.sin(np.arange(16_000) * 0.05) * 0.3, 16_000)
    code, out, err = run(
        capsys, "memory", f32_bundle, "--max-len", 3, "--json", prepare,
        "--reference", reference, "--memory-limit", "8G",
    )  # fmt: skip
    assert (code, err) == (0, "")
    report = json.loads(out)
    rows = {row["name"]: row for row in report["rows"]}
    graphs = {name.removeprefix("session ") for name in rows if name.startswith("session ")}
    assert graphs == {
        "lm", "patch_encoder", "flow", "flow_time", "flow_condition", "vae_encoder", "vae_decoder",
    }  # fmt: skip
    for kind in ("file_backed", "planned"):
        assert report["total"][kind] == sum(row[kind] for row in rows.values())
    assert report["total"]["measured"] >= rows["Python and libraries"]["measured"] > 0
    assert rows["KV cache"]["planned"] == report["run"]["kv_bytes"]
    assert report["kv_bucket_bytes"] == 256 * report["kv_row_bytes"]
    assert report["prepared"] is (prepare == "--prepare")
    assert bool(report["not_prepared"]) is (prepare != "--prepare")
    assert (rows["session lm"]["file_backed"] > 0) is report["prepared"]
    available = [limit["available"] for limit in report["limits"]]
    assert available == sorted(available)
    assert "hard limit" in {limit["name"] for limit in report["limits"]}
    assert report["events"] == []


def test_the_table_names_every_part_and_every_limit(
    f32_bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(
        capsys, "memory", f32_bundle, "--max-len", 2, "--memory-limit", "8G", "--text", "Hello."
    )
    assert code == 0
    for part in (
        "file-backed MiB", "planned MiB", "measured MiB", "Python and libraries", "session lm",
        "KV cache", "workspace and buffers", "all", "bytes per row", "Not prepared: its weights",
        "Limit: hard limit, 8192.0 MiB",
    ):  # fmt: skip
        assert part in out


@needs_matplotlib
def test_a_plot_is_drawn(
    f32_bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "memory.png"
    assert run(capsys, "memory", f32_bundle, "--max-len", 2, "--plot", picture)[0] == 0
    assert picture.read_bytes()[:4] == PNG
    assert os.listdir(tmp_path) == ["memory.png"]


@needs_matplotlib
def test_a_plot_shows_the_guards_events_in_the_format_its_name_says(tmp_path: Path) -> None:
    samples = [MemorySample(5.0 + i, i << 20, i << 21, {"kv": 1 << 19}) for i in range(4)]
    events = [GuardEvent(6.0, "made room", "emptied the KV pool for a test")]
    write_plot(tmp_path / "memory.svg", samples, events)
    text = (tmp_path / "memory.svg").read_text("utf-8")
    assert "<svg" in text
    assert "emptied the KV pool for a test" in text
    for name in ("memory.xyz", "none/memory.png"):
        with pytest.raises(OutputError, match=name):
            write_plot(tmp_path / name, samples, events)
    assert os.listdir(tmp_path) == ["memory.svg"]


def test_a_plot_without_matplotlib_is_refused_before_anything_runs(
    f32_bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    real = importlib.import_module

    def without(name: str, *rest: str) -> object:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(importlib, "import_module", without)
    monkeypatch.setattr("boardvoice.cli.memory.load_voice", lambda *_, **__: 1 / 0)
    code, out, err = run(
        capsys, "memory", f32_bundle, "--plot", tmp_path / "memory.png", "--json"
    )
    assert code == 8
    assert "pip install matplotlib" in err
    assert json.loads(out)["error"]["code"] == "dependency"
    assert os.listdir(tmp_path) == []


@needs_matplotlib
@pytest.mark.parametrize("name", ["none/memory.png", "memory.xyz", "."])
def test_a_plot_that_cannot_be_written_is_refused_before_anything_runs(
    f32_bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch, name: str,
) -> None:  # fmt: skip
    monkeypatch.setattr("boardvoice.cli.memory.load_voice", lambda *_, **__: 1 / 0)
    assert run(capsys, "memory", f32_bundle, "--plot", tmp_path / name)[0] == 11
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("command", ["say", "memory"])
def test_a_refusal_has_exit_code_12_says_what_is_missing_and_leaves_no_file(
    f32_bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    arguments = (
        ("say", "Hello.", "--bundle", f32_bundle) if command == "say" else ("memory", f32_bundle)
    )
    code, out, err = run(capsys, *arguments, "--memory-limit", "64M", "--json")
    assert code == 12
    assert "hard limit (64 MiB) leaves" in err
    error = json.loads(out)["error"]
    assert (error["code"], error["limited_by"]) == ("memory", "hard limit")
    assert error["needed_bytes"] > error["available_bytes"] >= 0
    assert error["remedy"]
    monkeypatch.setenv("BOARDVOICE_MEMORY_LIMIT", "64M")
    assert run(capsys, *arguments)[0] == 12
    assert os.listdir(tmp_path) == []


def test_a_refusal_in_the_middle_leaves_the_file_that_was_there(
    f32_bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    from edge_runtime.errors import MemoryBudgetError
    from edge_runtime.memory.guard import MemoryGuard

    looks = []

    def check(self: MemoryGuard, purpose: str) -> None:
        looks.append(purpose)
        if len(looks) == 3:
            raise MemoryBudgetError("Others took it.", limited_by="a neighbour")

    monkeypatch.setattr(MemoryGuard, "check", check)
    out = tmp_path / "out.wav"
    out.write_bytes(b"old")
    code, _, err = run(capsys, "say", "Hello there.", "--bundle", f32_bundle, "-o", out)
    assert (code, "Others took it." in err) == (12, True)
    assert looks == ["Reading the prefix", "Speaking", "Speaking"]
    assert out.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["out.wav"]


def test_an_allocation_that_fails_anywhere_is_a_refusal_and_no_traceback(
    f32_bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("edge_runtime.voxcpm2.model.VaeDecoder", fail)
    code, out, _ = run(
        capsys, "say", "Hi.", "--bundle", f32_bundle, "-o", tmp_path / "out.wav", "--json"
    )
    assert code == 12
    assert json.loads(out)["error"]["limited_by"] == "the allocator"
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("option", ["--memory-limit", "--memory-soft"])
@pytest.mark.parametrize("size", ["much", "0", "-5M"])
def test_an_option_that_is_no_size_is_a_usage_error(
    f32_bundle: Path, capsys: pytest.CaptureFixture[str], option: str, size: str
) -> None:
    assert main(["say", "Hi.", "--bundle", str(f32_bundle), f"{option}={size}"]) == 2
    assert f"'{size}' is no size" in capsys.readouterr().err
