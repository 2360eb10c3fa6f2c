"""Builds torch.save-like files without torch: a tiny pickle assembler and a zip around it."""

from __future__ import annotations

import io
import struct
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

STORAGE_OF = {
    "bf16": "BFloat16Storage", "float32": "FloatStorage", "float16": "HalfStorage",
    "float64": "DoubleStorage", "int64": "LongStorage", "int32": "IntStorage",
    "int16": "ShortStorage", "int8": "CharStorage", "uint8": "ByteStorage", "bool": "BoolStorage",
}  # fmt: skip


@dataclass(frozen=True)
class Global:
    """A dotted name that the pickle refers to."""

    name: str


@dataclass(frozen=True)
class Call:
    """function(*arguments), by REDUCE."""

    function: Any
    arguments: Any


@dataclass(frozen=True)
class Persistent:
    """A persistent id."""

    value: Any


@dataclass(frozen=True)
class Build:
    """target.__setstate__(state), by BUILD."""

    target: Any
    state: Any


@dataclass(frozen=True)
class Raw:
    """Bytes of the pickle as they are."""

    code: bytes


def body(value: Any) -> bytes:
    """Instructions that leave ``value`` on the stack."""
    match value:
        case Raw(code):
            return code
        case Global(name):
            module, _, attribute = name.rpartition(".")
            return f"c{module}\n{attribute}\n".encode()
        case Call(function, arguments):
            return body(function) + body(arguments) + b"R"
        case Persistent(inner):
            return body(inner) + b"Q"
        case Build(target, state):
            return body(target) + body(state) + b"b"
        case None:
            return b"N"
        case bool():
            return b"\x88" if value else b"\x89"
        case int():
            raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
            return b"\x8a" + bytes([len(raw)]) + raw
        case float():
            return b"G" + struct.pack(">d", value)
        case str():
            raw = value.encode("utf-8")
            return b"X" + struct.pack("<I", len(raw)) + raw
        case tuple():
            return b"(" + b"".join(body(item) for item in value) + b"t"
        case list():
            return b"](" + b"".join(body(item) for item in value) + b"e"
        case dict():
            items = b"".join(body(key) + body(item) for key, item in value.items())
            return b"}(" + items + b"u"
    raise TypeError(value)


def assemble(value: Any) -> bytes:
    """A whole protocol-2 pickle."""
    return b"\x80\x02" + body(value) + b"."


ORDERED = Call(Global("collections.OrderedDict"), ())


def storage(kind: str, key: str, numel: int) -> Persistent:
    """Reference to a storage, as torch writes it."""
    return Persistent(("storage", Global(f"torch.{kind}"), key, "cpu", numel))


def tensor(stored: Any, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Call:
    """A tensor, as torch writes it."""
    arguments = (stored, offset, shape, strides, False, ORDERED)
    return Call(Global("torch._utils._rebuild_tensor_v2"), arguments)


@dataclass
class TorchFile:
    """Collects storages while ``add`` turns arrays into pickled tensors."""

    records: dict[str, bytes] = field(default_factory=dict)
    byteorder: bytes | None = b"little"

    def add(self, array: np.ndarray[Any, Any], bf16: bool = False) -> Call:
        """Store the array, row-major; a uint16 array with ``bf16`` is taken as its bits."""
        key = str(len(self.records))
        order = ">" if self.byteorder == b"big" else "<"
        self.records[key] = array.astype(array.dtype.newbyteorder(order)).tobytes()
        kind = STORAGE_OF["bf16" if bf16 else array.dtype.name]
        strides = tuple(step // array.itemsize for step in np.empty_like(array, order="C").strides)
        return tensor(storage(kind, key, array.size), 0, array.shape, strides)

    def write(self, path: Path, value: Any, compression: int = zipfile.ZIP_STORED) -> Path:
        """Write the archive around ``value`` (or around finished pickle bytes)."""
        pickled = value if isinstance(value, bytes) else assemble(value)
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", compression) as archive:
            archive.writestr("archive/data.pkl", pickled)
            if self.byteorder is not None:
                archive.writestr("archive/byteorder", self.byteorder)
            for key, content in self.records.items():
                archive.writestr(f"archive/data/{key}", content)
            archive.writestr("archive/version", b"3\n")
        path.write_bytes(buffer.getvalue())
        return path
