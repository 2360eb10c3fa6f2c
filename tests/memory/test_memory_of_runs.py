"""Real memory of real processes: over many requests, against the plan, and below real limits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MIB = 1 << 20
SKIPPED = 77

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="needs Linux's /proc"
)

COMMON = """
import json, sys
import numpy as np
from edge_runtime.memory import malloc
from edge_runtime.memory.limits import ProcessMemory
from edge_runtime.voice import Voice

def clip(seconds, seed=0):
    random = np.random.default_rng(seed)
    return random.uniform(-0.4, 0.4, round(seconds * 16_000)).astype(np.float32), 16_000
"""

MANY = """
voice = Voice.load(sys.argv[1], threads=1, prepare=sys.argv[2])
found = []
for index in range(120):
    text = "hello there " * (1 + 3 * (index % 6))
    reference = clip(0.5 + index % 5, index) if index % 3 == 1 else clip(2) if index % 3 else None
    voice.say(text, reference=reference, seed=index, max_len=1 + index % 4, steps=2)
    if index % 20 == 19:
        found.append(ProcessMemory.read().anonymous)
print(json.dumps([found, voice.kv_bytes()]))
"""

PLANNED = """
voice = Voice.load(sys.argv[1], threads=1, prepare="auto")
audio = clip(30)
malloc.trim()
loaded = ProcessMemory.read().anonymous
said = voice.say("hello there " * 60, reference=audio, seed=1, max_len=4, steps=2,
                 chunk_rows=512)
costs = voice.resources.costs
print(json.dumps({
    "grown": said.metrics.peak_rss_anon_bytes - loaded,
    "workspace": sum(cost.least_bytes for cost in costs.values())
    + max(cost.most_bytes - cost.least_bytes for cost in costs.values()),
    "encoder": costs["vae_encoder"].session_bytes,
    "kv": voice.kv_bytes(),
}))
"""


def run(code: str, *arguments: object, state: Path) -> dict | list:
    done = subprocess.run(
        [sys.executable, "-c", COMMON + code, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "BOARDVOICE_STATE": str(state)},
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return json.loads(done.stdout)


@pytest.mark.parametrize("prepare", ["never", "auto"])
def test_120_mixed_requests_take_no_more_than_20(
    int8_bundle: Path, tmp_path: Path, prepare: str
) -> None:
    found, kv = run(MANY, int8_bundle, prepare, state=tmp_path)
    assert max(found) - found[0] <= 8 * MIB, found
    assert kv < 128 * MIB


def test_a_long_first_run_takes_no_more_than_what_was_measured_when_preparing(
    f32_bundle: Path, tmp_path: Path
) -> None:
    found = run(PLANNED, f32_bundle, state=tmp_path)
    planned = found["workspace"] + found["encoder"] + found["kv"]
    # Besides: copies of the clip (2 MB each), rows of the prefix, and Python's own objects.
    assert found["grown"] <= planned + 7 * MIB, found


def test_below_real_limits_every_run_speaks_right_or_refuses_and_nobody_is_killed(
    int8_bundle: Path, tmp_path: Path
) -> None:
    command = [
        sys.executable, str(ROOT / "benchmarks/oom_sweep.py"), "--bundle", str(int8_bundle),
        "--force-prepare", "--limits", "96M,128M,256M", "--max-len", "3", "--unprepared", "128M",
        "--address-space", "512M,1G,4G", "--timeout", "60",
    ]  # fmt: skip
    done = subprocess.run(
        command, check=False, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "BOARDVOICE_STATE": str(tmp_path / "state")},
    )  # fmt: skip
    if done.returncode == SKIPPED:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kernel kills: 0" in done.stdout
    # Neither all refused nor all spoken: the limits are about where it begins to fit.
    assert "| right audio |" in done.stdout
    assert "| refused (memory) |" in done.stdout


ENCODED = """
voice = Voice.load(sys.argv[1], threads=1, prepare="never")
guard = voice.resources.guard
def held():
    # Caches emptied: what is left is ONNX Runtime's and the heap's.
    guard._steps[0].action()
    return ProcessMemory.read().anonymous
voice.say("hello", reference=clip(30, 0), seed=1, max_len=1, steps=2)
before = held()
found = []
for index in range(6):
    voice.say("hello", reference=clip(1 + 5 * index, 1 + index), seed=1, max_len=1, steps=2)
    found.append(held() - before)
print(json.dumps(found))
"""


def test_what_a_reference_took_goes_back_whatever_its_length(
    f32_bundle: Path, tmp_path: Path
) -> None:
    # Outputs that lie in ONNX Runtime's arena keep its pieces: up to 5 MiB here.
    found = run(ENCODED, f32_bundle, state=tmp_path)
    assert max(map(abs, found)) < 2 * MIB, found
