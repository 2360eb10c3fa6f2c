"""Reader of ``torch.save`` files (``*.bin``, ``*.pth``) without torch and without unpickling.

The file is a zip archive: ``data.pkl`` describes the tensors, each ``data/<key>`` is one storage,
stored uncompressed and so mapped where it lies. The checksum of ``data.pkl`` is checked; those of
the storages are not, because opening would then read the whole file.
"""

from __future__ import annotations

import re
import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from edge_runtime.errors import CheckpointError, UnsupportedError
from export.checkpoint.mapped_file import MappedFile
from export.checkpoint.mapped_source import MappedSource
from export.checkpoint.mapped_tensor import MappedTensor, itemsize
from export.checkpoint.tensor_source import LazyTensor
from export.checkpoint.torch_pickle import PickledTensor, PickleRefusedError, load_state

_ZIP_MAGIC: Final = b"PK\x03\x04"
_LOCAL_HEADER: Final = struct.Struct("<4s5H3I2H")
# What torch wrote before 1.6: a pickle of this number first, or a tar archive before that.
_LEGACY_MAGIC: Final = (0x1950A86A20F9469CFC6C).to_bytes(10, "little")
_TAR_MAGIC: Final = b"ustar"
_TAR_MAGIC_AT: Final = 257
_PICKLE_NAME: Final = re.compile(r"[^/]+/data\.pkl", re.DOTALL)
_ENCRYPTED: Final = 0x1
_UTF8_NAME: Final = 0x800
# Bounds what reading the pickle can allocate; real ones have under 2 MB.
_MAX_READ: Final = 16 * 2**20


class TorchZip(MappedSource):
    """Tensors of one ``torch.save`` file in zip format.

    A top-level ``state_dict`` is unwrapped, as the official loader does; values that are no
    tensors are left out.

    Args:
        path: The file.

    Raises:
        CheckpointError: Missing, unreadable, torn, or asking for more than tensors and plain
            data; a refused global is named. Nothing of the file is ever executed.
        UnsupportedError: Written by torch before 1.6, TorchScript, or compressed.
    """

    def _parse(self, file: MappedFile) -> Mapping[str, LazyTensor]:
        return _parse(file)


@dataclass(frozen=True)
class _Record:
    """Where the bytes of one archive member lie."""

    start: int
    size: int
    crc: int


@dataclass(frozen=True)
class _Archive:
    """Members by their name below the archive's one folder."""

    mapping: MappedFile
    members: dict[str, zipfile.ZipInfo]

    def record(self, name: str) -> _Record:
        """Locate a member and check that its bytes are stored plainly inside the file."""
        member = self.members.get(name)
        if member is None:
            raise _torn(self.mapping, f"record {name!r} is missing")
        if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & _ENCRYPTED:
            raise UnsupportedError(
                f"{self.mapping.path}: record {name!r} is compressed or encrypted.",
                remedy="Use the file as torch.save wrote it, not repacked by a zip tool.",
            )
        if not 0 <= member.header_offset <= len(self.mapping) - _LOCAL_HEADER.size:
            raise _torn(self.mapping, f"record {name!r} lies outside of the file")
        raw = self.mapping.chunk(member.header_offset, _LOCAL_HEADER.size)
        magic, *_, name_size, extra_size = _LOCAL_HEADER.unpack(raw)
        name_at = member.header_offset + _LOCAL_HEADER.size
        encoding = "utf-8" if member.flag_bits & _UTF8_NAME else "cp437"
        stored_name = self.mapping.chunk(name_at, name_size)
        if magic != _ZIP_MAGIC or stored_name != member.orig_filename.encode(encoding):
            raise _torn(self.mapping, f"record {name!r} is not where the archive says")
        start = name_at + name_size + extra_size
        size = member.file_size
        if size != member.compress_size or start + size > len(self.mapping):
            raise _torn(self.mapping, f"record {name!r} reaches beyond the end of the file")
        return _Record(start, size, member.CRC)

    def checked(self, name: str) -> bytes:
        """Content of a small member, by its checksum."""
        record = self.record(name)
        if record.size > _MAX_READ:
            raise _torn(self.mapping, f"record {name!r} has {record.size} bytes, too many to read")
        content = self.mapping.chunk(record.start, record.size)
        if zlib.crc32(content) != record.crc:
            raise _torn(self.mapping, f"record {name!r} does not match its checksum")
        return content


def _parse(mapping: MappedFile) -> dict[str, MappedTensor]:
    archive = _open_archive(mapping)
    big_endian = _is_big_endian(archive)
    try:
        checkpoint = load_state(archive.checked("data.pkl"))
    except PickleRefusedError as error:
        raise CheckpointError(
            f"{mapping.path}: data.pkl is refused: {error}.",
            remedy="Nothing was executed; use the published checkpoint, best as .safetensors.",
        ) from error
    state = checkpoint.get("state_dict", checkpoint) if isinstance(checkpoint, dict) else None
    if not isinstance(state, dict):
        raise _torn(mapping, "data.pkl holds no dictionary of tensors")
    tensors = {}
    for name, value in state.items():
        if not isinstance(value, PickledTensor):
            continue
        if not isinstance(name, str):
            raise _torn(mapping, f"a tensor is filed under {name!r} instead of a name")
        tensors[name] = _tensor(archive, name, value, big_endian)
    if not tensors:
        raise CheckpointError(
            f"{mapping.path}: neither the top level nor 'state_dict' holds a tensor.",
            remedy="Use the published checkpoint, not an optimizer or trainer file.",
        )
    return tensors


def _open_archive(mapping: MappedFile) -> _Archive:
    head = mapping.chunk(0, _TAR_MAGIC_AT + len(_TAR_MAGIC))
    if not head.startswith(_ZIP_MAGIC):
        if _LEGACY_MAGIC in head[:16] or head[_TAR_MAGIC_AT:] == _TAR_MAGIC:
            raise UnsupportedError(
                f"{mapping.path}: torch's legacy format (before torch 1.6) is not supported.",
                remedy="Save it again with a newer torch (torch.save), or as .safetensors.",
            )
        raise _torn(mapping, "it is no zip archive, so no torch.save file")
    try:
        with zipfile.ZipFile(mapping.path) as archive:
            members = archive.infolist()
    except (
        zipfile.BadZipFile, NotImplementedError, OSError, ValueError, OverflowError, EOFError,
        LookupError, struct.error,
    ) as error:  # fmt: skip
        raise _torn(mapping, f"its zip directory is damaged or cut off ({error})") from error
    names = [member.orig_filename for member in members]
    roots = [name[: -len("data.pkl")] for name in names if _PICKLE_NAME.fullmatch(name)]
    if len(roots) != 1:
        raise _torn(mapping, f"it holds {len(roots)} records named data.pkl instead of 1")
    inside = [member for member in members if member.orig_filename.startswith(roots[0])]
    by_name = {member.orig_filename[len(roots[0]) :]: member for member in inside}
    if len(by_name) != len(inside):
        raise _torn(mapping, "it holds two records of the same name")
    if "constants.pkl" in by_name:
        raise UnsupportedError(
            f"{mapping.path}: a TorchScript archive is not supported.",
            remedy="Use the state dict that torch.save wrote, or a .safetensors file.",
        )
    return _Archive(mapping, by_name)


def _is_big_endian(archive: _Archive) -> bool:
    # Absent before torch 2.1, which wrote little-endian on every machine we know of.
    if "byteorder" not in archive.members:
        return False
    order = archive.checked("byteorder")
    if order not in (b"little", b"big"):
        raise _torn(archive.mapping, f"byte order {order[:16]!r} is neither little nor big")
    return order == b"big"


def _tensor(archive: _Archive, name: str, tensor: PickledTensor, big_endian: bool) -> MappedTensor:
    mapping, storage = archive.mapping, tensor.storage
    if not storage.dtype:
        raise _torn(mapping, f"the storage of tensor {name!r} has no element type")
    record = archive.record(f"data/{storage.key}")
    width = itemsize(storage.dtype)
    if record.size != storage.numel * width:
        raise _torn(
            mapping,
            f"the storage of tensor {name!r} has {record.size} bytes instead of "
            f"{storage.numel * width}",
        )
    steps = zip(tensor.shape, tensor.strides, strict=True)
    end = tensor.offset + 1 + sum((size - 1) * stride for size, stride in steps)
    if 0 not in tensor.shape and end > storage.numel:
        raise _torn(
            mapping,
            f"tensor {name!r} of shape {tensor.shape} reaches element {end} of a storage of "
            f"{storage.numel}",
        )
    return MappedTensor(
        name=name,
        shape=tensor.shape,
        dtype=storage.dtype,
        mapping=mapping,
        offset=record.start + tensor.offset * width,
        strides=tuple(stride * width for stride in tensor.strides),
        big_endian=big_endian,
    )


def _torn(mapping: MappedFile, what: str) -> CheckpointError:
    return CheckpointError(
        f"{mapping.path}: {what}.",
        remedy="The file is damaged or cut off, or was not written by torch.save with its "
        "checksums; download it again.",
    )
