"""Checkpoint tensors by module path, checked for presence and shape when asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from edge_runtime.errors import CheckpointError
from export.checkpoint.folder import require
from export.checkpoint.tensor_source import FloatArray, LazyTensor
from export.graph.linear import LinearWeight


@dataclass(frozen=True)
class Parameters:
    """View of a checkpoint below one module path.

    Attributes:
        source: All tensors of the checkpoint.
        prefix: Module path with its trailing dot, or empty.
    """

    source: Mapping[str, LazyTensor]
    prefix: str = ""

    def at(self, *path: object) -> Parameters:
        """The parameters of a submodule."""
        return Parameters(self.source, self.prefix + "".join(f"{part}." for part in path))

    def has(self, name: str) -> bool:
        """Whether the checkpoint holds this tensor."""
        return self.prefix + name in self.source

    def lazy(self, name: str, *shape: int) -> LazyTensor:
        """A tensor of exactly this shape, not read yet.

        Raises:
            CheckpointError: Missing, of another shape, or no floats.
        """
        tensor = require(self.source, self.prefix + name, shape)
        if tensor.dtype not in ("f32", "f16", "bf16"):
            raise CheckpointError(
                f"{tensor.file}: tensor {tensor.name!r} has type {tensor.dtype}.",
                remedy="Weights must be f32, f16 or bf16: use the unquantized checkpoint.",
            )
        return tensor

    def array(self, name: str, *shape: int) -> FloatArray:
        """A tensor of exactly this shape as f32.

        Raises:
            CheckpointError: Missing, of another shape, or with values that are not finite.
        """
        tensor = self.lazy(name, *shape)
        return _finite(tensor, tensor.read())

    def linear(self, name: str, outputs: int, inputs: int, *, scale: float = 1.0) -> LinearWeight:
        """Weight of a linear layer, optionally multiplied by ``scale``."""
        tensor = self.lazy(f"{name}.weight", outputs, inputs)
        factor = np.float32(scale)

        def rows(start: int, stop: int) -> FloatArray:
            found = _finite(tensor, tensor.rows(start, stop))
            return found if scale == 1.0 else found * factor

        return LinearWeight(outputs, inputs, rows)

    def bias(self, name: str, outputs: int) -> FloatArray:
        """Bias of a linear layer."""
        return self.array(f"{name}.bias", outputs)


def _finite(tensor: LazyTensor, values: FloatArray) -> FloatArray:
    """The values, none of which may be NaN or infinite: no weight format survives that."""
    # A NaN passes through both; unlike isfinite() this allocates nothing.
    if values.size and not (np.isfinite(values.min()) and np.isfinite(values.max())):
        raise CheckpointError(
            f"{tensor.file}: tensor {tensor.name!r} has a NaN or infinite value.",
            remedy="Download the checkpoint again.",
        )
    return values
