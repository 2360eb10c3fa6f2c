"""Logs of interrupted runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from training.demo_voice.curves import draw, read_log


def write_log(folder: Path) -> None:
    lines = [{"flow": 2.0, "step": 50}, {"flow": 1.5, "step": 100}, {"flow": 1.4, "step": 100}]
    text = "\n".join(map(json.dumps, [*lines, {"flow": 1.0, "held_flow": 1.1, "step": 150}]))
    (folder / "voice.jsonl").write_text(text + "\n", encoding="utf-8")


def test_a_step_done_again_counts_once(tmp_path: Path) -> None:
    write_log(tmp_path)
    log = read_log(tmp_path / "voice.jsonl")
    assert [entry["flow"] for entry in log] == [2.0, 1.4, 1.0]
    assert read_log(tmp_path / "codec.jsonl") == []


def test_picture_is_drawn_from_the_logs_there_are(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    write_log(tmp_path)
    draw(tmp_path, tmp_path / "curves.svg")
    assert (tmp_path / "curves.svg").stat().st_size > 1000
