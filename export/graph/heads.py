"""Attention heads padded to the size that ONNX Runtime's kernels take."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from export.checkpoint.tensor_source import FloatArray
from export.graph.linear import LinearWeight

_MULTIPLE = 16


@dataclass(frozen=True)
class HeadLayout:
    """Place of each head dimension in a padded head.

    GroupQueryAttention takes head sizes that are multiples of 16. Zeros fill the gap, at the end
    of each half, since rotation pairs dimension i with i + size / 2; scores and outputs stay what
    they were.

    Attributes:
        size: Head size of the model.
        padded: Head size in the graph.
    """

    size: int
    padded: int

    @staticmethod
    def of(size: int) -> HeadLayout:
        """Layout for a head size."""
        return HeadLayout(size, -(-size // _MULTIPLE) * _MULTIPLE)

    def outputs(self, weight: LinearWeight) -> LinearWeight:
        """Pad a projection to heads (query, key, value)."""
        if self.size == self.padded:
            return weight
        heads = weight.outputs // self.size
        padded = np.zeros((heads, self.padded, weight.inputs), np.float32)
        rows = weight.rows(0, weight.outputs)
        padded[:, self._places()] = rows.reshape(heads, self.size, weight.inputs)
        return _held(padded.reshape(heads * self.padded, weight.inputs))

    def inputs(self, weight: LinearWeight) -> LinearWeight:
        """Pad a projection from heads (output)."""
        if self.size == self.padded:
            return weight
        heads = weight.inputs // self.size
        padded = np.zeros((weight.outputs, heads, self.padded), np.float32)
        rows = weight.rows(0, weight.outputs)
        padded[:, :, self._places()] = rows.reshape(weight.outputs, heads, self.size)
        return _held(padded.reshape(weight.outputs, heads * self.padded))

    def table(self, values: FloatArray) -> FloatArray:
        """Pad a rotary table [positions, size / 2] with zeros to [positions, padded / 2]."""
        return np.pad(values, ((0, 0), (0, self.padded // 2 - values.shape[1])))

    def _places(self) -> list[int]:
        first = (self.size + 1) // 2
        return [*range(first), *(self.padded // 2 + i for i in range(self.size - first))]


def _held(array: FloatArray) -> LinearWeight:
    return LinearWeight(array.shape[0], array.shape[1], lambda start, stop: array[start:stop])
