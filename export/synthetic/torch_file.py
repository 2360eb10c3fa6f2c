"""Streaming writer of PyTorch's zip format (`torch.save`), without PyTorch.

The archive holds a pickled dict whose tensors point at one stored member each; a tensor is the
call `_rebuild_tensor_v2(storage, offset, shape, stride, requires_grad, hooks)`. `torch.load`
accepts nothing but those calls under ``weights_only=True``.
"""

from __future__ import annotations

import math
import pickle
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from export.synthetic.encoder import TensorEncoder
from export.synthetic.tensors import TensorSpec

_STORAGES = {
    "bf16": "BFloat16Storage",
    "f16": "HalfStorage",
    "f32": "FloatStorage",
    "int32": "IntStorage",
}
# PyTorch starts each member at such a multiple, so that files can be mapped.
_ALIGNMENT = 64
_LOCAL_HEADER = 30
_EXTRA_HEADER = 4
# One instant for all files: the same seed must give the same bytes.
_WHEN = (1980, 1, 1, 0, 0, 0)


def write_torch_file(
    path: Path, specs: Sequence[TensorSpec], encoder: TensorEncoder, *, wrap: str | None = None
) -> None:
    """Write a state dict that ``torch.load(path, weights_only=True)`` reads.

    Args:
        path: File to write; its stem names the folder inside the archive, as in PyTorch.
        specs: Tensors in the order of the dict.
        encoder: Their storage.
        wrap: Key to put the state dict under; by default it is the file's whole content.
    """
    root = path.stem
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        _add(archive, f"{root}/data.pkl", [_state_dict(specs, encoder, wrap)])
        _add(archive, f"{root}/byteorder", [b"little"])
        for index, spec in enumerate(specs):
            _add(archive, f"{root}/data/{index}", encoder.blocks(spec))
        _add(archive, f"{root}/version", [b"3\n"])


def _add(
    archive: zipfile.ZipFile, name: str, blocks: Iterator[memoryview] | Sequence[bytes]
) -> None:
    info = zipfile.ZipInfo(name, _WHEN)
    info.create_system = 3  # the same on every system
    assert archive.fp is not None
    start = archive.fp.tell() + _LOCAL_HEADER + len(name) + _EXTRA_HEADER
    padding = -start % _ALIGNMENT
    info.extra = b"FB" + padding.to_bytes(2, "little") + b"Z" * padding
    with archive.open(info, "w") as member:
        for block in blocks:
            member.write(block)


def _state_dict(specs: Sequence[TensorSpec], encoder: TensorEncoder, wrap: str | None) -> bytes:
    content = pickle.PROTO + b"\x02" + pickle.EMPTY_DICT
    if wrap is not None:
        content += pickle.MARK + _text(wrap) + pickle.EMPTY_DICT
    items = b"".join(
        _text(spec.name) + _tensor(index, spec, _STORAGES[encoder.dtype(spec)])
        for index, spec in enumerate(specs)
    )
    content += pickle.MARK + items + pickle.SETITEMS
    if wrap is not None:
        content += pickle.SETITEMS
    return content + pickle.STOP


def _tensor(index: int, spec: TensorSpec, storage: str) -> bytes:
    strides = tuple(math.prod(spec.shape[axis + 1 :]) for axis in range(len(spec.shape)))
    reference = (
        _text("storage")
        + _global("torch", storage)
        + _text(str(index))
        + _text("cpu")
        + _integer(spec.count)
    )
    return (
        _global("torch._utils", "_rebuild_tensor_v2")
        + pickle.MARK
        + pickle.MARK + reference + pickle.TUPLE + pickle.BINPERSID
        + _integer(0)
        + _integers(spec.shape)
        + _integers(strides)
        + pickle.NEWFALSE
        + _global("collections", "OrderedDict") + pickle.EMPTY_TUPLE + pickle.REDUCE
        + pickle.TUPLE
        + pickle.REDUCE
    )  # fmt: skip


def _global(module: str, name: str) -> bytes:
    return pickle.GLOBAL + f"{module}\n{name}\n".encode()


def _text(value: str) -> bytes:
    data = value.encode()
    return pickle.BINUNICODE + len(data).to_bytes(4, "little") + data


def _integer(value: int) -> bytes:
    return pickle.BININT + value.to_bytes(4, "little", signed=True)


def _integers(values: Sequence[int]) -> bytes:
    return pickle.MARK + b"".join(_integer(value) for value in values) + pickle.TUPLE
