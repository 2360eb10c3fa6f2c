"""`boardvoice voices` and `say --voice`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from recordings import recorded

from boardvoice.main import main
from edge_runtime.voices.store import VoiceStore


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    file = tmp_path / "me.wav"
    file.write_bytes(recorded())
    return file


def outcome(capsys: pytest.CaptureFixture[str]) -> dict:
    return json.loads(capsys.readouterr().out)


def test_a_voice_is_added_listed_spoken_with_and_removed(
    clip: Path, state: Path, f32_bundle: Path, tmp_path: Path, capsys
) -> None:
    bundle = ["--bundle", str(f32_bundle), "--threads", "1"]
    assert main(["voices", "add", "anna", str(clip), *bundle, "--json"]) == 0
    assert outcome(capsys)["name"] == "anna"
    reference = VoiceStore().get("anna").audio()
    clip.unlink()
    assert main(["voices", "list", "--json"]) == 0
    (entry,) = outcome(capsys)["voices"]
    assert (entry["name"], entry["state"]) == ("anna", "good")
    said = ["say", "hello", "--seed", "1", "--max-len", "2", "--steps", "2", *bundle, "-q"]
    kept = tmp_path / "reference.wav"
    kept.write_bytes(recorded(*reference))
    outs = [tmp_path / name for name in ("a.wav", "b.wav", "c.wav")]
    for out, voice in zip(outs, (["--voice", "anna"], ["--reference", str(kept)], []), strict=True):
        assert main([*said, *voice, "-o", str(out)]) == 0
    assert outs[0].read_bytes() == outs[1].read_bytes() != outs[2].read_bytes()
    assert main(["voices", "remove", "anna"]) == 0
    capsys.readouterr()
    assert main(["voices", "list"]) == 0
    assert "anna" not in capsys.readouterr().out


def test_errors_have_their_codes(clip: Path, state: Path, f32_bundle: Path, capsys) -> None:
    bundle = ["--bundle", str(f32_bundle)]
    assert main(["voices", "add", "No", str(clip), *bundle]) == 17
    assert main(["voices", "add", "anna", "/nowhere.wav", *bundle]) == 4
    assert main(["voices", "remove", "anna"]) == 17
    assert main(["say", "hello", "--voice", "anna", *bundle]) == 17
    assert main(["say", "hello", "--voice", "a", "--reference", "b", *bundle]) == 2
    assert main(["voices", "remove", "anna", "--json"]) == 17
    assert outcome(capsys)["error"]["code"] == "voice"


def test_a_torn_voice_is_shown(clip: Path, state: Path, capsys) -> None:
    (state / "voices").mkdir(parents=True)
    (state / "voices/anna.voice").write_bytes(b"half")
    assert main(["voices", "list", "--json"]) == 0
    captured = capsys.readouterr()
    (entry,) = json.loads(captured.out)["voices"]
    assert entry["state"] == "torn"
    assert captured.err.count("passed over") == 1
    assert main(["voices", "list"]) == 0
    assert "torn" in capsys.readouterr().out
    assert main(["voices", "remove", "anna"]) == 0
