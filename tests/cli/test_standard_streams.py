"""Standard output that is closed, full, or has no reader any more: exit code 11, no traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import pytest

from boardvoice.main import main

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = [
    "--help", "say --help", "--version", "profiles list", "profiles show", "profiles schema",
    "profiles explain", "profiles list --json", "plan BUNDLE", "plan BUNDLE --json",
    "memory BUNDLE --max-len 2", "memory BUNDLE --max-len 2 --json", "selftest BUNDLE",
    "selftest BUNDLE --json", "doctor --bundle BUNDLE", "prepare BUNDLE --json",
    "say Hi. --bundle BUNDLE --max-len 2 -o - -q",
]  # fmt: skip


def exit_code(words: list[str]) -> object:
    try:
        return main(words)
    except SystemExit as ended:
        return ended.code


def closed() -> None:
    return None


def full() -> TextIO:
    return open("/dev/full", "w", encoding="utf-8")


def without_reader() -> TextIO:
    reading, writing = os.pipe()
    os.close(reading)
    return os.fdopen(writing, "w", encoding="utf-8")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("standard_output", [closed, full, without_reader])
def test_every_command_ends_with_11_where_nobody_can_read_its_result(
    command: str, standard_output: Callable[[], TextIO | None], f32_bundle: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    words = [word.replace("BUNDLE", str(f32_bundle)) for word in command.split()]
    stream = standard_output()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        found = exit_code(words)
    # Help goes to standard error where there is no standard output.
    help_elsewhere = stream is None and command.endswith(("--help", "--version"))
    assert found == (0 if help_elsewhere else 11)
    if stream is not None:
        stream.close()


def test_closed_descriptors_are_not_taken_by_the_next_file_that_is_opened(tmp_path: Path) -> None:
    # What a library prints would end up in that file.
    program = (
        "import os, sys; from boardvoice.main import main; "
        "code = main(['profiles', 'list']); number = os.open(sys.argv[1], os.O_RDONLY); "
        "sys.exit(100 + number if code == 11 else code)"
    )
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "-c", program, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False,
    )  # fmt: skip
    assert done.returncode > 102


@pytest.mark.parametrize("words", [["profiles", "list"], ["--version"], ["say"]])
def test_the_handlers_of_signals_are_given_back(words: list[str]) -> None:
    def mine(_number: int, _frame: object) -> None:
        raise AssertionError

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, mine) for number in numbers}
    try:
        assert exit_code(words) in (0, 2)
        assert [signal.getsignal(number) for number in numbers] == [mine, mine]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.mark.parametrize("words", ["profiles list", "profiles show", "plan BUNDLE"])
def test_a_terminal_for_ascii_gets_plain_lines(
    words: str, f32_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "out").open("w", encoding="ascii") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert main(words.replace("BUNDLE", str(f32_bundle)).split()) == 0
    text = (tmp_path / "out").read_text("ascii")
    assert ("+--" in text) is (words != "profiles show")


def test_speech_goes_out_where_no_file_can_be_written(f32_bundle: Path, tmp_path: Path) -> None:
    words = ["say", "Hi.", "--bundle", str(f32_bundle), "--max-len", "2", "-o", "-", "-q"]
    done = subprocess.run(
        ["sh", "-c", 'ulimit -f 0; exec "$@"', "sh", sys.executable, "-m", "boardvoice", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout[:4] == b"RIFF"
    assert os.listdir(tmp_path) == []


def test_what_was_logged_is_not_said_again(
    f32_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / "state").write_text("")
    monkeypatch.setenv("BOARDVOICE_STATE", str(tmp_path / "state"))
    out = tmp_path / "out.wav"
    words = ["say", "Hi.", "--bundle", str(f32_bundle), "--max-len", "2", "-o", str(out)]
    assert main([*words, "--prepare"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert sum("Not prepared for this device: " in line for line in lines) == 1
    assert all(line.startswith("boardvoice: ") for line in lines[:-1])


def test_onnxruntime_leaves_nothing_in_the_home_folder(f32_bundle: Path, tmp_path: Path) -> None:
    # Its own switches for tests must not be what keeps it quiet.
    kept = ("PATH", "LD_LIBRARY_PATH", "LANG")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    environment |= {"HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    words = ["say", "Hi.", "--bundle", str(f32_bundle), "--max-len", "2", "--no-prepare", "-q"]
    done = subprocess.run(
        [sys.executable, "-m", "boardvoice", *words, "-o", str(tmp_path / "out.wav")],
        env=environment, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert os.listdir(tmp_path) == ["out.wav"]
