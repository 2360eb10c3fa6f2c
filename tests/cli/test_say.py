"""`boardvoice say` as a user meets it: real processes, real files, real signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile

COMMAND = [sys.executable, "-m", "boardvoice"]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def run(cache: Path, tmp_path: Path):
    def call(*arguments: str, stdin: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [*COMMAND, *arguments],
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            cwd=tmp_path,
            env={**os.environ, "XDG_CACHE_HOME": str(cache)},
            timeout=120,
        )

    return call


def test_speaks_on_a_fresh_machine(run, tmp_path):
    done = run("say", "Now serving number 42 at counter seven.")
    assert done.returncode == 0, done.stderr
    info = soundfile.info(tmp_path / "out.wav")
    assert (info.samplerate, info.channels, info.subtype) == (16000, 1, "PCM_16")
    assert info.frames % 2560 == 0
    assert 2 < info.duration < 6
    assert b"ended by stop" in done.stderr
    assert b"not trained" not in done.stderr


def test_the_demo_voice_says_which_words_it_never_heard(run):
    done = run("say", "Reboot counter 7.", "--max-len", "2")
    assert done.returncode == 0
    assert b"may say them wrong: Reboot;" in done.stderr


def test_same_seed_gives_the_same_file_and_another_seed_another(run, tmp_path):
    for name, seed in (("a", "5"), ("b", "5"), ("c", "6")):
        run("say", "Hello.", "--max-len", "4", "--seed", seed, "-o", f"{name}.wav", "-q")
    a, b, c = ((tmp_path / f"{name}.wav").read_bytes() for name in "abc")
    assert a == b != c


def test_stdout_streams_the_samples_of_the_file(run, tmp_path):
    common = ("say", "Hello.", "--max-len", "4", "--seed", "5", "-q", "--no-retry-badcase")
    run(*common, "-o", "file.wav")
    piped = run(*common, "-o", "-")
    assert piped.returncode == 0
    expected, _ = soundfile.read(tmp_path / "file.wav", dtype="int16")
    assert piped.stdout[:4] == b"RIFF"
    assert np.array_equal(np.frombuffer(piped.stdout[44:], "<i2"), expected)


def test_json_has_the_agreed_names_and_nothing_else_on_stdout(run):
    done = run("say", "Hello.", "--max-len", "4", "--json")
    metrics = json.loads(done.stdout)
    for name in (
        "patches", "stop_reason", "prefix_rows", "kv_bytes", "ms", "first_audio_ms",
        "ms_per_patch", "cpu_s_per_patch", "rtf", "peak_rss_anon_bytes", "seed",
    ):  # fmt: skip
        assert name in metrics
    assert metrics["patches"] == 4
    assert metrics["stop_reason"] in ("stop", "max_len")


def test_a_preset_is_in_the_json_and_steps_override_it(run):
    metrics = json.loads(run("say", "Hi.", "--max-len", "2", "--preset", "fast", "--json").stdout)
    assert (metrics["preset"], metrics["steps"], metrics["cfg"]) == ("fast", 5, 2.0)
    both = ("--preset", "balanced", "--steps", "3", "--cfg", "1.5")
    metrics = json.loads(run("say", "Hi.", "--max-len", "2", *both, "--json").stdout)
    assert (metrics["preset"], metrics["steps"], metrics["cfg"]) == ("balanced", 3, 1.5)


def test_json_goes_to_stderr_when_stdout_carries_audio(run):
    done = run("say", "Hello.", "--max-len", "4", "--json", "-o", "-")
    assert done.stdout[:4] == b"RIFF"
    assert json.loads(done.stderr)["patches"] == 4


@pytest.mark.parametrize("how", ["stdin", "file"])
def test_text_comes_from_stdin_or_a_file(run, tmp_path, how):
    text = "Grüß Gott, 你好."
    if how == "stdin":
        done = run("say", "-", "--max-len", "3", "--json", stdin=text.encode())
    else:
        (tmp_path / "text.txt").write_text(text + "\n", encoding="utf-8")
        done = run("say", "--file", "text.txt", "--max-len", "3", "--json")
    assert json.loads(done.stdout)["chunks"][0]["text"] == text


def test_design_is_put_in_parentheses_before_the_text(run):
    done = run("say", "Hello.", "--design", "a calm voice", "--max-len", "3", "--json")
    assert json.loads(done.stdout)["chunks"][0]["text"] == "(a calm voice)Hello."


def test_clones_from_any_rate_and_channels_and_goes_on_from_a_prompt(run, tmp_path):
    tone = np.sin(np.arange(44100) * 0.05) * 0.3
    soundfile.write(tmp_path / "voice.flac", np.stack([tone, tone * 0.5], 1), 44100)
    done = run(
        "say", "Hello.", "--reference", "voice.flac", "--prompt-audio", "voice.flac",
        "--prompt-text", "One two.", "--max-len", "3", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    # One second is 7 patches; the reference has a token on each side.
    assert json.loads(done.stdout)["prefix_rows"] >= 7 + 2 + 7


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        ((), 2, b"Give the text"),
        (("Hi.", "--file", "x"), 2, b"not both"),
        (("Hi.", "--steps", "1"), 2, b"steps"),
        (("Hi.", "--cfg", "nan"), 2, b"cfg"),
        (("Hi.", "--threads", "0"), 2, b"threads"),
        (("Hi.", "--prompt-text", "x"), 2, b"go together"),
        (("",), 3, b""),
        (("   \n ",), 3, b""),
        (("...",), 3, b""),
        (("a\x07b",), 3, b"position 1"),
        (("--file", "missing.txt"), 3, b"missing.txt"),
        (("Hi.", "--reference", "missing.wav"), 4, b"missing.wav"),
        (("Hi.", "--bundle", "nowhere"), 5, b"nowhere"),
        (("Hi.", "--design", "deep " * 30, "--chunk-rows", "16"), 7, b"16 KV rows"),
        (("Hi.", "--design", "..."), 3, b"voice design"),
        (("Hi.", "--bundle", ""), 2, b"--bundle"),
        (("Hi.", "--max-l", "3"), 2, b"--max-l"),
        (("Hi.", "--seed", "x"), 2, b"--seed"),
        (("Hi.", "--profile", "toaster"), 9, b"generic-x86-64"),
        (("Hi.", "-o", "missing/out.wav"), 11, b""),
        (("Hi.", "-o", "out.xyz"), 11, b".wav"),
    ],
)
def test_errors_are_typed_and_have_their_exit_codes(run, arguments, code, part):
    done = run("say", "--max-len", "2", *arguments)
    assert done.returncode == code, done.stderr
    assert part in done.stderr
    assert b"Traceback" not in done.stderr


def test_errors_are_json_when_asked(run):
    done = run("say", "", "--json")
    error = json.loads(done.stdout)["error"]
    assert error["code"] == "text"
    assert error["message"]


def test_bytes_that_are_no_utf8_are_refused_with_their_place(run):
    done = run("say", "-", stdin=b"Hello \xff")
    assert done.returncode == 3
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_run_and_leaves_no_file(cache, tmp_path, number, code):
    words = "one two three four five six seven eight nine ten " * 400
    process = subprocess.Popen(
        [*COMMAND, "say", words, "-o", "-", "--json", "--min-len", "4000"],
        bufsize=0,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
    )
    assert process.stdout is not None
    assert process.stdout.read(44)[:4] == b"RIFF"
    process.send_signal(number)
    rest, errors = process.communicate(timeout=60)
    assert process.returncode == code
    metrics = json.loads(errors)
    assert metrics["stop_reason"] == "cancelled"
    assert len(rest) == metrics["patches"] * 2560 * 2
    assert list(tmp_path.iterdir()) == []


def test_a_cancelled_run_keeps_the_file_that_was_there(cache, tmp_path):
    (tmp_path / "out.wav").write_bytes(b"old")
    process = subprocess.Popen(
        [*COMMAND, "say", "word " * 3000, "-o", "out.wav", "--min-len", "4000"],
        bufsize=0,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
    )
    time.sleep(4)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert (tmp_path / "out.wav").read_bytes() == b"old"


def test_a_reader_that_goes_away_ends_the_run(cache, tmp_path):
    process = subprocess.Popen(
        [*COMMAND, "say", "word " * 3000, "-o", "-", "-q", "--min-len", "4000"],
        bufsize=0,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
    )
    assert process.stdout is not None
    process.stdout.read(44)
    process.stdout.close()
    assert process.wait(timeout=60) == 11
    assert process.stderr is not None
    assert b"Traceback" not in process.stderr.read()


def test_an_unwritable_cache_is_said_with_a_remedy(run, tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("")
    done = subprocess.run(
        [*COMMAND, "say", "Hi."],
        capture_output=True,
        cwd=tmp_path,
        env={**os.environ, "XDG_CACHE_HOME": str(blocker)},
        timeout=60,
    )
    assert done.returncode == 5
    assert b"XDG_CACHE_HOME" in done.stderr
    assert b"Traceback" not in done.stderr


def signalled(
    cache: Path, folder: Path, number: int, *arguments: str, after: float
) -> tuple[int, bytes, bytes]:
    process = subprocess.Popen(
        [*COMMAND, "say", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
    )
    time.sleep(after)
    process.send_signal(number)
    out, errors = process.communicate(timeout=60)
    return process.returncode, out, errors


@pytest.mark.parametrize("after", [0.05, 0.3, 1.0, 2.0])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_the_first_patch_ends_the_process_without_noise(
    cache, tmp_path, number, after
):
    (tmp_path / "long.txt").write_text("x" * 900_000)
    common = ("--file", "long.txt", "-o", "out.wav")
    code, _, errors = signalled(cache, tmp_path, number, *common, after=after)
    # Before Python runs any of our code the signal itself, or Python's start, ends the process.
    python_itself = code == 1 and b"site" in errors and b"boardvoice/" not in errors
    assert code in (128 + number, -number) or python_itself, errors
    assert b"Traceback" not in errors or code == -number or python_itself
    assert not (tmp_path / "out.wav").exists()


def test_a_closed_standard_error_is_no_failure(cache, tmp_path):
    for target in ("2>&-", "2>/dev/full"):
        command = f"{sys.executable} -m boardvoice say Hi. --max-len 2 -o out.wav {target}"
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            env={**os.environ, "XDG_CACHE_HOME": str(cache)},
            timeout=60,
            check=False,
        )
        assert done.returncode == 0
        assert (tmp_path / "out.wav").exists()


@pytest.mark.parametrize("target", [">/dev/full", ">&-"])
def test_json_that_nobody_can_read_is_an_output_error(cache, tmp_path, target):
    command = f"{sys.executable} -m boardvoice say Hi. --max-len 2 -o out.wav --json {target}"
    done = subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        cwd=tmp_path,
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
        timeout=60,
        check=False,
    )
    assert done.returncode == 11
    assert b"Traceback" not in done.stderr


def test_wrong_options_are_json_too(run):
    done = run("say", "Hi.", "--json", "--seed", "x")
    assert json.loads(done.stdout)["error"]["code"] == "usage"
    assert done.returncode == 2


def test_a_damaged_default_voice_is_made_again(tmp_path):
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    command = [*COMMAND, "say", "Hi.", "--max-len", "2", "-o", str(tmp_path / "out.wav"), "-q"]

    def speak() -> int:
        return subprocess.run(command, env=environment, timeout=60, check=False).returncode

    assert speak() == 0
    (bundle,) = (tmp_path / "boardvoice").iterdir()
    (bundle / "manifest.json").unlink()
    assert speak() == 0
    (bundle / "embedding.bin").write_bytes(b"")
    assert speak() == 0
    assert [path.name for path in (tmp_path / "boardvoice").iterdir()] == [bundle.name]


def test_two_processes_that_make_the_default_voice_at_once_both_speak(tmp_path):
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    processes = [
        subprocess.Popen(
            [*COMMAND, "say", "Hi.", "--max-len", "2", "-o", str(tmp_path / f"{index}.wav"), "-q"],
            env=environment,
        )
        for index in range(2)
    ]
    assert [process.wait(timeout=60) for process in processes] == [0, 0]
    assert len(list((tmp_path / "boardvoice").iterdir())) == 1


def test_a_link_is_followed_when_a_file_is_written(run, tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "link.wav").symlink_to("there/real.wav")
    run("say", "Hi.", "--max-len", "2", "-o", "link.wav")
    assert (tmp_path / "link.wav").is_symlink()
    assert soundfile.info(tmp_path / "there/real.wav").frames
