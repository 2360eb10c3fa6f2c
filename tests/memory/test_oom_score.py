"""`memory.oom_score_adj`: set when a profile says so, and not otherwise."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from edge_runtime.memory.oom_score import set_oom_score

_SPEAK = """
import json, sys
from pathlib import Path
from boardvoice import Voice
voice = Voice.load(sys.argv[1], profile=sys.argv[2] or None, prepare="never")
speech = voice.say("Hi.", seed=1, max_len=2)
print(json.dumps([int(Path("/proc/self/oom_score_adj").read_text()), speech.metrics.warnings]))
"""


def _profile(folder: Path, adjustment: int) -> Path:
    file = folder / "mine.yaml"
    file.write_text(
        "name: mine\ntitle: Mine\nextends: generic-x86-64\n"
        f"memory: {{oom_score_adj: {adjustment}}}\n"
    )
    return file


@pytest.mark.parametrize("adjustment", [None, 321])
def test_a_profile_sets_it_and_nothing_else_does(
    f32_bundle: Path, tmp_path: Path, adjustment: int | None
) -> None:
    before = int(Path("/proc/self/oom_score_adj").read_text())
    profile = "" if adjustment is None else str(_profile(tmp_path, adjustment))
    done = subprocess.run(
        [sys.executable, "-c", _SPEAK, str(f32_bundle), profile],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    score, warnings = json.loads(done.stdout)
    assert score == (before if adjustment is None else adjustment)
    assert not any("oom_score_adj" in warning for warning in warnings)


def test_what_cannot_be_set_is_told(tmp_path: Path) -> None:
    reason = set_oom_score(-900, tmp_path)
    assert "memory.oom_score_adj: -900 cannot be set" in reason
    assert "CAP_SYS_RESOURCE" in reason
