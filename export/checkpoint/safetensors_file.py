"""Reader of one ``.safetensors`` file: an 8-byte length, a JSON header, then the tensors.

The format is small enough to check completely here, and doing so gives float32 rows of bf16
tensors without anonymous copies, whatever version of the safetensors package is installed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from edge_runtime.errors import CheckpointError, UnsupportedError
from export.checkpoint.mapped_file import MappedFile
from export.checkpoint.mapped_source import MappedSource
from export.checkpoint.mapped_tensor import MappedTensor, itemsize, shape_problem
from export.checkpoint.tensor_source import LazyTensor

_DTYPES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "F32": "f32", "F16": "f16", "BF16": "bf16", "F64": "float64", "BOOL": "bool",
        "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64",
        "U8": "uint8", "U16": "uint16", "U32": "uint32", "U64": "uint64",
    }
)  # fmt: skip
# The format's own limit.
_MAX_HEADER: Final = 100_000_000
_PREFIX: Final = 8


class SafetensorsFile(MappedSource):
    """Tensors of one ``.safetensors`` file.

    Args:
        path: The file.

    Raises:
        CheckpointError: Missing, unreadable, torn or inconsistent; file and tensor are named.
        UnsupportedError: A tensor of a type that this reader does not take.
    """

    def _parse(self, file: MappedFile) -> Mapping[str, LazyTensor]:
        return _parse(file)


def _parse(mapping: MappedFile) -> dict[str, MappedTensor]:
    header, start = _header(mapping)
    tensors = {
        name: _tensor(mapping, name, entry, start)
        for name, entry in header.items()
        if name != "__metadata__"
    }
    end = start
    for tensor in sorted(tensors.values(), key=lambda item: (item.offset, _nbytes(item))):
        if tensor.offset != end:
            what = "overlaps the one before it" if tensor.offset < end else "follows a gap"
            raise _torn(mapping, f"tensor {tensor.name!r} {what} (at byte {tensor.offset})")
        end = tensor.offset + _nbytes(tensor)
    if end != len(mapping):
        raise _torn(mapping, f"the header needs {end} bytes, the file has {len(mapping)}")
    return tensors


def _header(mapping: MappedFile) -> tuple[dict[str, Any], int]:
    """JSON header and the byte at which tensor data starts."""
    if len(mapping) < _PREFIX:
        raise _torn(mapping, f"{len(mapping)} bytes cannot hold a safetensors header")
    size = int.from_bytes(mapping.chunk(0, _PREFIX), "little")
    if size > _MAX_HEADER or size > len(mapping) - _PREFIX:
        raise _torn(
            mapping, f"the header claims {size} bytes, the file has {len(mapping) - _PREFIX} left"
        )
    try:
        header = json.loads(
            mapping.chunk(_PREFIX, size).decode("utf-8"), object_pairs_hook=_without_duplicates
        )
    except (ValueError, RecursionError) as error:
        raise _torn(mapping, f"the header is not valid JSON ({error})") from error
    if not isinstance(header, dict):
        raise _torn(mapping, "the header is no JSON object")
    return header, _PREFIX + size


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a name occurs twice")
    return result


def _tensor(mapping: MappedFile, name: str, entry: object, start: int) -> MappedTensor:
    if not isinstance(entry, dict):
        raise _torn(mapping, f"tensor {name!r} has no description")
    dtype, shape, offsets = (entry.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(dtype, str):
        raise _torn(mapping, f"tensor {name!r} has no dtype")
    if dtype not in _DTYPES:
        raise UnsupportedError(
            f"{mapping.path}: tensor {name!r} has dtype {dtype!r}, which is not supported.",
            remedy=f"Use the unquantized checkpoint; supported are {', '.join(_DTYPES)}.",
        )
    if problem := shape_problem(shape):
        raise _torn(mapping, f"tensor {name!r}: {problem}")
    if not (
        isinstance(offsets, list)
        and len(offsets) == 2
        and all(type(offset) is int for offset in offsets)
        and 0 <= offsets[0] <= offsets[1]
    ):
        raise _torn(mapping, f"tensor {name!r}: data_offsets are not two rising offsets")
    tensor = MappedTensor(name, tuple(shape or ()), _DTYPES[dtype], mapping, start + offsets[0])
    if offsets[1] - offsets[0] != _nbytes(tensor):
        raise _torn(
            mapping,
            f"tensor {name!r}: {dtype} of shape {tensor.shape} needs {_nbytes(tensor)} bytes, "
            f"its data_offsets give {offsets[1] - offsets[0]}",
        )
    if start + offsets[1] > len(mapping):
        raise _torn(
            mapping,
            f"tensor {name!r} ends at byte {start + offsets[1]}, the file at {len(mapping)}",
        )
    return tensor


def _nbytes(tensor: MappedTensor) -> int:
    total = itemsize(tensor.dtype)
    for size in tensor.shape:
        total *= size
    return total


def _torn(mapping: MappedFile, what: str) -> CheckpointError:
    return CheckpointError(
        f"{mapping.path}: {what}.", remedy="The file is damaged or cut off; download it again."
    )
