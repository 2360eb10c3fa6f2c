"""What reading a large vocabulary takes, against what the guard is asked for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from boardvoice import Voice
from edge_runtime.errors import MemoryBudgetError
from edge_runtime.memory.guard import MemoryGuard
from edge_runtime.tokenizer import Tokenizer

_MIB = 1 << 20
_ENTRIES = 70_000
_SCRIPT = """
import sys, tokenizers
from pathlib import Path
from edge_runtime.memory import malloc, watch
from edge_runtime.memory.limits import ProcessMemory
from edge_runtime.tokenizer import Tokenizer
watch.INTERVAL_S = 0.001
malloc.limit_arenas(1)
before = ProcessMemory.read().anonymous
with watch.MemoryWatch() as seen:
    kept = Tokenizer.load(Path(sys.argv[1]), frozenset())
print(seen.peak - before)
"""


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A tokenizer.json of byte-fallback BPE with as many entries as MiniCPM's, a tenth Chinese."""
    chinese = [chr(0x4E00 + number) for number in range(5000)]
    words = [f"▁entry{number}" for number in range(_ENTRIES - 2 * len(chinese) - 1)]
    pairs = [chinese[number] + chinese[-1 - number] for number in range(len(chinese))]
    vocabulary = {entry: number for number, entry in enumerate(["<unk>", *chinese, *pairs, *words])}
    file = tmp_path / "tokenizer.json"
    model = {"type": "BPE", "unk_token": "<unk>", "vocab": vocabulary, "merges": []}
    file.write_text(json.dumps({"version": "1.0", "added_tokens": [], "model": model}), "utf-8")
    return file


def test_a_large_vocabulary_takes_no_more_than_the_guard_is_asked_for(large: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(large)], check=True, capture_output=True, text=True
    )
    assert 0 < int(done.stdout) <= Tokenizer.memory_bytes(large.stat().st_size)


def test_pairs_of_a_large_vocabulary_are_split(large: Path) -> None:
    tokenizer = Tokenizer.load(large, frozenset())
    vocabulary = json.loads(large.read_text("utf-8"))["model"]["vocab"]
    first, last = "\u4e00", chr(0x4E00 + 4999)
    assert tokenizer.encode(first + last) == [vocabulary[first], vocabulary[last]]


def test_the_guard_is_asked_before_the_tokenizer_is_read(
    f32_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    reserve = MemoryGuard.reserve

    def refuse(self: MemoryGuard, needed: int, purpose: str, *, mapped: int = 0) -> None:
        asked.append((purpose, needed))
        reserve(self, 1 << 60 if "tokenizer" in purpose else needed, purpose, mapped=mapped)

    monkeypatch.setattr(MemoryGuard, "reserve", refuse)
    monkeypatch.setattr(Tokenizer, "load", lambda *_: pytest.fail("was read all the same"))
    with pytest.raises(MemoryBudgetError, match="tokenizer"):
        Voice.load(f32_bundle, prepare="never")
    size = (f32_bundle / "tokenizer.json").stat().st_size
    assert asked[-1] == ("Loading the tokenizer", Tokenizer.memory_bytes(size))
