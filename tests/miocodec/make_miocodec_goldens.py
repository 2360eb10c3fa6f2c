"""Record golden files with the reference.

Needs torch, torchaudio, safetensors and github.com/Aratako/MioCodec beside this project::

    PYTHONPATH=.:tests/miocodec python tests/miocodec/make_miocodec_goldens.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch
from miocodec_cases import (
    FOLDER,
    RATES,
    SECONDS,
    digest,
    features_of,
    stretched,
    tokens_of,
    voice_of,
    write_golden,
)
from miocodec_reference import content, decode, load_reference

from edge_runtime.miocodec.fsq import Quantizer
from export.synthetic.miocodec import make_miocodec

# No value of the quantizer lies nearer to a rounding edge than this, whatever the CPU.
LEAST_MARGIN = 1e-4
_CONTENT_SECONDS = 20.0


def main() -> None:
    """Write all golden files."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for rate in RATES:
            checkpoint = make_miocodec(Path(folder) / str(rate), rate=rate)
            model = load_reference(checkpoint)
            voice = voice_of(model.global_encoder.output_dim)
            arrays = {}
            for seconds in SECONDS:
                whole = decode(model, tokens_of(seconds), voice, None)
                fitted = decode(model, tokens_of(seconds), voice, stretched(seconds, rate))
                arrays[f"audio_{seconds}"], arrays[f"fitted_{seconds}"] = map(
                    digest, (whole, fitted)
                )
                arrays[f"lengths_{seconds}"] = np.array([len(whole), len(fitted)])
                arrays[f"peaks_{seconds}"] = np.array([np.abs(whole).max(), np.abs(fitted).max()])
            found, seed = _clear_of_edges(model)
            arrays |= {"tokens": found["tokens"].astype(np.int16), "voice": found["voice"]}
            meta = {"torch": torch.__version__, "reference": "7747354", "content_seed": seed}
            write_golden(f"tiny-{rate}", meta, arrays)


def _clear_of_edges(model: object) -> tuple[dict[str, np.ndarray], int]:
    for seed in range(3, 400):
        found = content(model, features_of(_CONTENT_SECONDS, 48, seed))
        bounded = Quantizer((8, 8, 8, 5, 5)).bounded(found["latents"])
        margin = np.abs(np.abs(bounded - np.floor(bounded)) - 0.5).min()
        if margin > LEAST_MARGIN:
            return found, seed
    raise AssertionError("no seed keeps clear of every rounding edge")


if __name__ == "__main__":
    main()
