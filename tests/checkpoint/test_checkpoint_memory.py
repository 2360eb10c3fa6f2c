"""Reading rows of a large file allocates about those rows, counted in bytes."""

from __future__ import annotations

import json
import re
import struct
import tracemalloc
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch_zip_writer import assemble, storage, tensor

from export.checkpoint.safetensors_file import SafetensorsFile
from export.checkpoint.tensor_source import TensorSource
from export.checkpoint.torch_zip import TorchZip

STATUS = Path("/proc/self/status")
MIB = 2**20
COLUMNS = 1024
# Python's and the allocator's own noise.
SLACK = 2 * MIB

pytestmark = pytest.mark.skipif(not STATUS.exists(), reason="needs /proc")


def anonymous_bytes() -> int:
    found = re.search(r"RssAnon:\s+(\d+) kB", STATUS.read_text())
    assert found
    return int(found[1]) * 1024


def sparse_safetensors(path: Path, dtype: str, itemsize: int, rows: int) -> SafetensorsFile:
    size = rows * COLUMNS * itemsize
    entry = {"dtype": dtype, "shape": [rows, COLUMNS], "data_offsets": [0, size]}
    header = json.dumps({"w": entry}).encode()
    with path.open("wb") as stream:
        stream.write(struct.pack("<Q", len(header)) + header)
        stream.truncate(8 + len(header) + size)
    return SafetensorsFile(path)


def large_torch_zip(path: Path, rows: int) -> TorchZip:
    weights = tensor(storage("BFloat16Storage", "0", rows * COLUMNS), 0, (rows, COLUMNS), (1024, 1))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", assemble({"w": weights}))
        with archive.open("archive/data/0", "w") as stream:
            for _ in range(rows * COLUMNS * 2 // MIB):
                stream.write(bytes(MIB))
    return TorchZip(path)


@pytest.fixture(params=["bf16", "f16", "f32", "torch"])
def large(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TensorSource]:
    path = tmp_path / "large"
    match request.param:
        case "bf16":
            source: TensorSource = sparse_safetensors(path, "BF16", 2, 150 * 1024)
        case "f16":
            source = sparse_safetensors(path, "F16", 2, 150 * 1024)
        case "f32":
            source = sparse_safetensors(path, "F32", 4, 75 * 1024)
        case _:
            source = large_torch_zip(path, 32 * 1024)
    with source:
        yield source
    path.unlink()


def test_rows_allocate_one_float32_copy_of_themselves(large: TensorSource) -> None:
    rows, wanted = 2048, 2048 * COLUMNS * 4
    start = large["w"].shape[0] // 2
    before = anonymous_bytes()
    tracemalloc.start()
    try:
        block = large["w"].rows(start, start + rows)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert block.shape == (rows, COLUMNS)
    assert peak < wanted + SLACK
    assert anonymous_bytes() - before < wanted + SLACK


def test_walking_the_whole_file_leaves_no_anonymous_memory_behind(large: TensorSource) -> None:
    tensor = large["w"]
    tensor.rows(0, 1024)
    before = anonymous_bytes()
    for start in range(0, tensor.shape[0], 1024):
        tensor.rows(start, start + 1024)
    assert anonymous_bytes() - before < SLACK + 1024 * COLUMNS * 4
