"""A pipe where a file should be is refused at once: reading it would wait for ever."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from boardvoice.main import main


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["profiles", "show", "PIPE.yaml"], 9),
        (["say", "Hi.", "--profile", "PIPE.yaml"], 9),
        (["bench", "--compare", "PIPE.json"], 2),
        (["selftest", "BUNDLE"], 5),
        (["plan", "BUNDLE"], 5),
        (["export", "voxcpm2", "CHECKPOINT", "--out", "out"], 6),
    ],
)
def test_a_pipe_is_refused(
    words: list[str], code: int, f32_bundle: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    for name in ("PIPE.yaml", "PIPE.json"):
        os.mkfifo(name)
    shutil.copytree(f32_bundle, "BUNDLE")
    os.mkdir("CHECKPOINT")
    for place in ("BUNDLE/manifest.json", "CHECKPOINT/config.json"):
        Path(place).unlink(missing_ok=True)
        os.mkfifo(place)
    assert main(words) == code
    assert "not a regular file" in capsys.readouterr().err
    assert not Path("out").exists()
