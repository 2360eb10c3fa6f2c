"""`boardvoice bench`."""

from __future__ import annotations

import importlib
import importlib.util
import os
import threading
from pathlib import Path

import pytest
from samples import result, stat

from boardvoice.main import main
from edge_runtime.bench import probe as probing
from edge_runtime.bench.results import BenchResult

needs_matplotlib = pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed"
)


def test_the_whole_command(
    int8_bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(probing, "_SECONDS", 0.0)
    file = tmp_path / "result.json"
    code = main(
        ["bench", str(int8_bundle), "--patches", "2", "--runs", "1", "--threads", "1",
         "--json", str(file)]
    )  # fmt: skip
    out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    for part in ("flow, ms per patch", "lm_step", "prefill", "one patch, CPU-s", "first audio, ms",
                 "real-time factor", "of limit", "reads", "Cold: audio"):  # fmt: skip
        assert part in out
    found = BenchResult.load(file)
    assert found.cold is not None
    assert found.setup.threads == 1


def test_a_result_is_shown_again_and_compared_without_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result(200.0).save(tmp_path / "now.json")
    result(100.0, kv_mb=0.5, rtf=stat(2.0)).save(tmp_path / "before.json")
    code = main(["bench", str(tmp_path / "now.json"), "--compare", str(tmp_path / "before.json")])
    out, err = capsys.readouterr()
    assert code == 0
    assert "2.000" in out
    assert "slower" in out
    assert "faster" in out
    assert err == "boardvoice: worse beyond noise: patch ms, KV MB.\n"


@pytest.mark.parametrize("option", ["--compare", "--plot"])
def test_what_can_be_refused_is_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    real = importlib.import_module

    def without(name: str, *rest: str) -> object:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr("boardvoice.cli.bench.run_bench", lambda *_: 1 / 0)
    monkeypatch.setattr(importlib, "import_module", without)
    code = main(["bench", str(tmp_path), option, str(tmp_path / "none.json")])
    assert code == {"--compare": 2, "--plot": 8}[option]
    assert capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "name"),
    [
        ("--json", "none/result.json"),
        ("--json", "."),
        pytest.param("--plot", "none/result.png", marks=needs_matplotlib),
        pytest.param("--plot", "result.zork", marks=needs_matplotlib),
    ],
)
def test_a_place_that_cannot_be_written_is_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    option: str, name: str,
) -> None:  # fmt: skip
    monkeypatch.setattr("boardvoice.cli.bench.run_bench", lambda *_: 1 / 0)
    assert main(["bench", str(tmp_path), option, str(tmp_path / name)]) == 11
    assert str(tmp_path / name) in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["--json", pytest.param("--plot", marks=needs_matplotlib)])
def test_a_result_is_written_into_a_pipe(tmp_path: Path, option: str) -> None:
    result(200.0).save(tmp_path / "now.json")
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(fifo.read_bytes()), daemon=True)
    reader.start()
    assert main(["bench", str(tmp_path / "now.json"), "-q", option, str(fifo)]) == 0
    reader.join()
    assert found[0].startswith(b"{" if option == "--json" else b"\x89PNG")
    assert fifo.is_fifo()


@pytest.mark.parametrize("arguments", [["--patches", "1"], ["--runs", "0"], ["--steps", "1"]])
def test_settings_that_measure_nothing_are_usage_errors(
    f32_bundle: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert main(["bench", str(f32_bundle), *arguments]) == 2
    assert "is" in capsys.readouterr().err


@needs_matplotlib
@pytest.mark.parametrize("both", [False, True])
def test_a_picture_is_drawn(tmp_path: Path, both: bool) -> None:
    result(200.0).save(tmp_path / "now.json")
    result(100.0, components={}).save(tmp_path / "before.json")
    compared = ["--compare", str(tmp_path / "before.json")] if both else []
    picture = tmp_path / "bench.svg"
    assert main(["bench", str(tmp_path / "now.json"), "-q", "--plot", str(picture), *compared]) == 0
    text = picture.read_text("utf-8")
    assert "<svg" in text
    assert "limit of the machine" in text
    assert (
        main(["bench", str(tmp_path / "now.json"), "-q", "--plot", str(tmp_path / "a.xyz")]) == 11
    )
