"""`boardvoice plan`: what it prints."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from boardvoice.cli.commands import run


def test_json_has_every_figure_with_its_source(
    outline: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", str(outline), "--profile", "rock-5a", "--memory", "8G", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["profile"] == "rock-5a"
    assert plan["memory"]["verdict"] == "fits"
    assert plan["memory"]["source"].startswith("estimated")
    assert plan["cpu"]["ms_per_patch"] > 160
    assert plan["cpu"]["first_audio_ms"] > 0
    assert plan["cpu"]["rtf"] > 1
    assert plan["placed"]["at_best"] is True
    figures = {one["name"]: one for one in plan["figures"]}
    assert figures["memory_gb_s"]["value"] == 18.3
    assert "sbc-bench" in figures["memory_gb_s"]["source"]


def test_words_say_what_fits_and_what_would_change_it(
    outline: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", str(outline), "--profile", "rk3588-generic", "--memory", "3G"]) == 0
    out = capsys.readouterr().out
    assert "does not fit" in out
    assert "a board needs 4 GiB" in out
    assert "--weights int4" in out
    assert "--preset fast" in out
    assert "figure: memory_gb_s 22: STREAM" in out
    assert "Run on such hardware: never" in out


@pytest.mark.parametrize(
    ("options", "code"),
    [(["--profile", "none-such"], 9), (["--memory", "much"], 2), (["--max-len", "0"], 2),
     (["--max-len", "20000"], 7)],
)  # fmt: skip
def test_bad_input_has_its_exit_code(
    outline: Path, options: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", str(outline), *options]) == code


def test_a_folder_that_is_no_bundle_is_refused(tmp_path: Path) -> None:
    assert run(["plan", str(tmp_path), "--profile", "rock-5a"]) == 5


def test_what_speaks_does_not_load_what_plans() -> None:
    code = (
        "import sys, edge_runtime.voxcpm2, edge_runtime.voice;"
        "print('onnx' in sys.modules, 'edge_runtime.plan.planner' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
