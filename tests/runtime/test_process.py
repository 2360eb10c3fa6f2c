"""What a process of its own shows: threads, and memory over many requests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="needs Linux's /proc"
)

COMMON = """
import json, sys, time
from pathlib import Path
import numpy as np
from edge_runtime.voice import Voice
from edge_runtime.memory.limits import ProcessMemory

def threads():
    status = Path("/proc/self/status").read_text()
    return int(status.split("Threads:")[1].split()[0])
"""

THREADS = """
before = threads()
voice = Voice.load(sys.argv[1], threads=int(sys.argv[2]))
loaded = threads()
audio = np.full(16_000, 0.1, np.float32), 16_000
voice.say("hello", reference=audio, seed=1, max_len=2)
time.sleep(0.2)  # a thread that was joined may be on its way out of the kernel still
print(json.dumps([loaded - before, threads() - before]))
"""

LEAK = """
voice = Voice.load(sys.argv[1], threads=1)
audio = np.random.default_rng(0).uniform(-0.3, 0.3, 16_000), 16_000

def request(index):
    text = "hello there " * (1 + index % 4)
    if index % 4 == 0:
        voice.say(text, seed=index, max_len=3, steps=2)
    elif index % 4 == 1:
        voice.say(text, reference=audio, seed=index, max_len=2, steps=2)
    elif index % 4 == 2:
        list(voice.stream(text, seed=index, max_len=3, steps=3))
    else:
        next(voice.stream(text, seed=index, steps=2))

found = []
for index in range(120):
    request(index)
    if index % 20 == 19:
        found.append(ProcessMemory.read().anonymous)
print(json.dumps([found, threads()]))
"""


def run(code: str, *arguments: object) -> list:
    done = subprocess.run(
        [sys.executable, "-c", COMMON + code, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return json.loads(done.stdout)


def test_one_thread_means_no_thread_but_the_callers(int8_bundle: Path) -> None:
    assert run(THREADS, int8_bundle, 1) == [0, 0]


def test_more_threads_are_a_pool_per_session(int8_bundle: Path) -> None:
    # Six sessions, and the encoder's with the first reference.
    assert run(THREADS, int8_bundle, 3) == [6 * 2, 7 * 2]


def test_a_hundred_requests_take_no_more_memory_than_twenty(int8_bundle: Path) -> None:
    found, threads = run(LEAK, int8_bundle)
    assert found[-1] - found[0] < 8 << 20, found
    assert threads < 50
