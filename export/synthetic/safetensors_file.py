"""Streaming safetensors writer: header first, then tensors block by block."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from export.synthetic.encoder import TensorEncoder
from export.synthetic.tensors import TensorSpec

_DTYPE_NAMES = {"bf16": "BF16", "f16": "F16", "f32": "F32", "int32": "I32"}


def write_safetensors(path: Path, specs: Sequence[TensorSpec], encoder: TensorEncoder) -> None:
    """Write all tensors, in the given order, holding one block at a time."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for spec in specs:
        end = offset + encoder.size(spec)
        header[spec.name] = {
            "dtype": _DTYPE_NAMES[encoder.dtype(spec)],
            "shape": list(spec.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as stream:
        stream.write(len(text).to_bytes(8, "little"))
        stream.write(text)
        for spec in specs:
            stream.writelines(encoder.blocks(spec))
