"""Preparing in several processes, and in processes that are killed."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from preparing import make

from edge_runtime.bundle import Bundle
from edge_runtime.prepare.key import PreparationKey
from edge_runtime.prepare.prepared_bundle import find_prepared
from edge_runtime.voice import Voice

ROOT = Path(__file__).resolve().parents[2]

# Loads a bundle, and kills itself for real at one point of preparing it.
CHILD = """
import os, signal, sys
from pathlib import Path
import psutil
from edge_runtime import atomic
from edge_runtime.voice import Voice

bundle, point, number, notes = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])
calls = 0

def deadly(name, function):
    def call(*arguments, **options):
        global calls
        if name == point:
            calls += 1
            if calls == number:
                workers = [str(child.pid) for child in psutil.Process().children()]
                notes.write_text("\\n".join(workers))
                os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **options)
    return call

progress = deadly("graph", lambda *_: None)
os.rename = deadly("rename", os.rename)
os.fsync = deadly("fsync", os.fsync)
Voice.load(bundle, threads=1, prepare="auto", on_prepare=progress)
print("loaded")
"""

AT_ONCE = """
import hashlib, json, sys
from edge_runtime.voice import Voice
made = []
voice = Voice.load(sys.argv[1], threads=1, prepare="auto", on_prepare=lambda *p: made.append(p))
said = voice.say("hello", seed=1, max_len=2)
print(json.dumps([len(made), bool(voice.resources.costs),
                  hashlib.sha256(said.audio.tobytes()).hexdigest()]))
"""


# Starts a worker that waits for ever, says its number, and kills itself.
LEAVES_A_WORKER = """
import os, signal, subprocess, sys
code = (
    "import time; from edge_runtime.prepare import worker; "
    "worker.json.load = lambda _: (print('ready', flush=True), time.sleep(600)); worker.main()"
)
worker = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
assert worker.stdout.readline() == b"ready\\n"
print(worker.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def child(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", CHILD, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def ends(pid: int) -> bool:
    for _ in range(200):
        if gone(pid):
            return True
        time.sleep(0.05)
    return False


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks Linux's kernel")
def test_a_worker_ends_with_its_parent_even_while_it_packs() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LEAVES_A_WORKER],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False, stdout=subprocess.PIPE, timeout=120,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL
    assert ends(int(done.stdout))


@pytest.mark.parametrize(
    ("point", "number"),
    [("graph", 1), ("graph", 5), ("graph", 7), ("fsync", 1), ("fsync", 9), ("rename", 1)],
)
def test_a_killed_process_leaves_nothing_half_prepared_and_the_next_one_works(
    f32_bundle: Path, state: Path, tmp_path: Path, point: str, number: int
) -> None:
    opened = Bundle.open(f32_bundle)
    key = PreparationKey.of(opened)
    notes = tmp_path / "workers"
    done = child(f32_bundle, point, number, notes)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not (state / "prepared" / key.folder_name).exists()
    assert find_prepared(opened, key, state) is None
    # The worker goes with it: the next preparation does not run beside a forgotten one.
    assert all(ends(int(pid)) for pid in notes.read_text().split())
    assert Voice.load(f32_bundle, threads=1, prepare="auto").resources.costs
    left = sorted(os.listdir(state / "prepared"))
    assert left == sorted([f".{key.bundle_prefix}.lock", key.folder_name])


def test_two_processes_at_once_prepare_once_and_both_speak(f32_bundle: Path, state: Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", AT_ONCE, f32_bundle],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
        )
        for _ in range(3)
    ]
    found = [json.loads(process.communicate(timeout=120)[0]) for process in processes]
    assert sorted(made for made, _, _ in found) == [0, 0, 7]
    assert all(prepared for _, prepared, _ in found)
    plain = Voice.load(f32_bundle, threads=1, prepare="never").say("hello", seed=1, max_len=2)
    expected = hashlib.sha256(plain.audio.tobytes()).hexdigest()
    assert {digest for _, _, digest in found} == {expected}
    key = PreparationKey.of(Bundle.open(f32_bundle))
    left = sorted(os.listdir(state / "prepared"))
    assert left == sorted([f".{key.bundle_prefix}.lock", key.folder_name])


def test_a_voice_speaks_on_while_its_files_are_prepared_again_or_removed(
    f32_bundle: Path, state: Path
) -> None:
    voice = Voice.load(f32_bundle, threads=1, prepare="auto")
    before = voice.say("hello", seed=1, max_len=3).audio
    folder = make(f32_bundle, state).folder
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    assert (voice.say("hello", seed=1, max_len=3).audio == before).all()
