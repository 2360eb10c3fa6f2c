"""An export's anonymous memory is bounded, however large the checkpoint."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from export.synthetic.recipes import Recipe
from export.synthetic.tensors import model_tensors
from export.synthetic.tokenizer import SyntheticTokenizer

ROOT = Path(__file__).resolve().parents[2]
VOCAB, FFN = 1_000_000, 65_536

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="needs Linux's /proc"
)

CODE = """
import json, sys
from pathlib import Path
from edge_runtime.memory.limits import ProcessMemory
from edge_runtime.memory.watch import MemoryWatch
from export.voxcpm2.exporter import export_voxcpm2

tiny, big, out, weights = map(Path, sys.argv[1:])
export_voxcpm2(tiny, out / "tiny", weights=weights.name)
before, largest = ProcessMemory.read().anonymous, 0

def progress(file, done, total):
    global largest
    largest = max(largest, ProcessMemory.read().anonymous)

with MemoryWatch() as peak:
    export_voxcpm2(big, out / "big", weights=weights.name, progress=progress)
print(json.dumps(max(peak.peak, largest) - before))
"""


@pytest.fixture(scope="module")
def big_checkpoint(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint whose weights are a hole in a file: nothing but zeros, and no disk space."""
    recipe = Recipe(
        "big",
        "one large embedding table and large MLPs",
        changes=(("lm_config.vocab_size", VOCAB), ("lm_config.intermediate_size", FFN)),
    )
    folder = tmp_path_factory.mktemp("big") / "big"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(recipe.document()), "utf-8")
    SyntheticTokenizer(640).write(folder)
    (folder / "audiovae.safetensors").symlink_to(tiny_checkpoint / "audiovae.safetensors")
    header, offset = {}, 0
    for spec in model_tensors(recipe.config()):
        size = 2 * spec.count
        header[spec.name] = {
            "dtype": "BF16", "shape": list(spec.shape), "data_offsets": [offset, offset + size],
        }  # fmt: skip
        offset += size
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        stream.truncate(8 + len(text) + offset)
    return folder


# MB. Measured: 70 and 119, for a checkpoint of 254; pieces of 16 MiB and their temporaries.
@pytest.mark.parametrize(("weights", "bound"), [("int8", 120), ("int4", 180)])
def test_anonymous_memory_stays_far_below_the_checkpoints_size(
    big_checkpoint: Path, tiny_checkpoint: Path, tmp_path: Path, weights: str, bound: int
) -> None:
    size = (big_checkpoint / "model.safetensors").stat().st_size
    assert size > 250e6
    done = subprocess.run(
        [sys.executable, "-c", CODE, tiny_checkpoint, big_checkpoint, tmp_path, weights],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    growth = json.loads(done.stdout) / 1e6
    assert growth < bound
