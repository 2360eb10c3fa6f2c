"""Record golden files with the official package.

Needs torch and voxcpm 2.0.3 (with librosa and transformers) beside this project::

    PYTHONPATH=. python tests/parity/make_goldens.py

Every run is searched for by seed, so that no value of the quantizer and no pair of stop logits is
so close to tipping over that another CPU's rounding would take the run elsewhere (see
`official.OfficialVoice.settled`).
"""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from official import OfficialVoice
from parity_cases import MODES, Clips, Options, checkpoint_seed
from parity_golden import CASES, FOLDER, Golden, digest, path_of, write

from export.synthetic import RECIPES, make_checkpoint


def main() -> None:
    """Write all golden files."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        clips = Clips(Path(folder))
        for recipe, mode in CASES:
            checkpoint = Path(folder) / recipe
            if not checkpoint.exists():
                made_with = checkpoint_seed(recipe)
                make_checkpoint(checkpoint, RECIPES[recipe], seed=made_with, dtype="f32")
                official = OfficialVoice(checkpoint, clips)
            seed, run = official.settled(MODES[mode])
            meta = {
                "recipe": recipe,
                "checkpoint_seed": made_with,
                "mode": mode,
                "seed": seed,
                "options": asdict(Options()),
                "quantizer_margin": run.quantizer_margin,
                "stop_margin": run.stop_margin,
                "voxcpm": version("voxcpm"),
                "torch": torch.__version__,
                "numpy": np.__version__,
            }
            path = path_of(recipe, mode)
            write(path, Golden(meta, digest(run)))
            print(f"{path.name}: seed {seed}, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
