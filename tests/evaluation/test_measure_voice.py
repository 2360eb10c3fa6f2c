"""The evaluation of a bundle, with a recogniser that is told what to hear."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from boardvoice.cli import commands
from boardvoice.evaluation.measure import evaluate
from boardvoice.evaluation.recogniser import Recogniser
from edge_runtime.errors import DependencyError, OutputError, UsageError
from edge_runtime.speech import SpeechOptions
from edge_runtime.voice import Voice

TEXTS = ["Turn left.", "Your order is ready now."]


class Parrot:
    """Hears the given texts in turn."""

    name = "parrot"

    def __init__(self, *heard: str) -> None:
        self._heard = list(heard)
        self.lengths: list[int] = []

    def hear(self, audio: np.ndarray) -> str:
        self.lengths.append(len(audio))
        return self._heard[(len(self.lengths) - 1) % len(self._heard)]


def test_errors_and_flags_come_from_what_was_heard(f32_voice: Voice) -> None:
    row, spoken = evaluate(
        f32_voice, TEXTS, SpeechOptions(max_len=4), name="row", seeds=[1],
        recogniser=Parrot("turn right", "your order is"),
    )  # fmt: skip
    assert [sentence.errors for sentence in row.sentences] == [1, 2]
    assert row.wer == pytest.approx(100 * 3 / 7)
    assert row.summary()["early_stops"] == 1
    assert set(spoken) == {(text, 1) for text in TEXTS}
    assert json.loads(json.dumps(row.as_dict()))["each"][0]["heard"] == "turn right"


def test_distance_to_the_same_bundle_is_zero(f32_voice: Voice) -> None:
    options = SpeechOptions(max_len=4)
    _, first = evaluate(
        f32_voice, TEXTS[:1], options, name="a", seeds=[1, 2], recogniser=Parrot("turn left")
    )
    row, _ = evaluate(
        f32_voice, TEXTS[:1], options, name="b", seeds=[1, 2], recogniser=Parrot("turn left"),
        baseline=first,
    )  # fmt: skip
    assert row.summary()["distance_db"] == 0
    assert row.summary()["wer"] == 0


def test_without_the_extra_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    assert commands.run(["evaluate", str(tmp_path)]) == DependencyError.exit_code
    assert "boardvoice[evaluate]" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--report", "--save"])
def test_a_place_that_cannot_be_written_is_refused_before_anything_runs(
    option: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("boardvoice.cli.evaluate.Recogniser", lambda *_: 1 / 0)
    words = ["evaluate", str(tmp_path), option, str(tmp_path / "file" / "below")]
    assert commands.run(words) == OutputError.exit_code
    assert f"Name another with {option}." in capsys.readouterr().err


def test_recogniser_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("faster_whisper", reason="the evaluate extra is not installed")
    with pytest.raises(UsageError, match=r"model\.bin"):
        Recogniser(tmp_path)
