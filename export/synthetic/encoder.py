"""Bytes of synthetic tensors as checkpoint files store them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import ml_dtypes
import numpy as np
import numpy.typing as npt

from export.synthetic.tensors import TensorSpec
from export.synthetic.values import value_blocks

FloatName = Literal["bf16", "f16", "f32"]
FLOATS: dict[str, npt.DTypeLike] = {
    "bf16": ml_dtypes.bfloat16,
    "f16": np.dtype("<f2"),
    "f32": np.dtype("<f4"),
}
_WIDTHS = {"bf16": 2, "f16": 2, "f32": 4, "int32": 4}


@dataclass(frozen=True)
class TensorEncoder:
    """How one checkpoint file stores its tensors.

    Attributes:
        seed: Seed of the checkpoint.
        floats: Storage of every float tensor.
        written: Called with the number of bytes after each block.
    """

    seed: int
    floats: FloatName
    written: Callable[[int], None]

    def dtype(self, spec: TensorSpec) -> str:
        """``"bf16"``, ``"f16"``, ``"f32"`` or ``"int32"``."""
        return "int32" if spec.kind == "constant" else self.floats

    def size(self, spec: TensorSpec) -> int:
        """Bytes on disk."""
        return spec.count * _WIDTHS[self.dtype(spec)]

    def blocks(self, spec: TensorSpec) -> Iterator[memoryview]:
        """Little-endian content in storage order."""
        target = np.dtype("<i4") if spec.kind == "constant" else FLOATS[self.floats]
        for values in value_blocks(spec, self.seed):
            # ml_dtypes arrays offer no buffer, their bytes do.
            content = values.astype(target, copy=False).view(np.uint8).data
            yield content
            self.written(len(content))
