"""Reading one .safetensors file, whole and damaged."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from edge_runtime.errors import CheckpointError, UnsupportedError
from export.checkpoint.safetensors_file import SafetensorsFile

BF16_TABLE = np.arange(2**16, dtype=np.uint16)


def write_raw(path: Path, header: Any, data: bytes = b"") -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def entry(dtype: str = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    tensors = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.arange(4, dtype=np.int32)}
    save_file(tensors, path, metadata={"format": "pt"})
    return path


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (np.float32, "f32"), (np.float16, "f16"), (np.float64, "float64"), (np.bool_, "bool"),
        (np.int8, "int8"), (np.int16, "int16"), (np.int32, "int32"), (np.int64, "int64"),
        (np.uint8, "uint8"), (np.uint16, "uint16"), (np.uint32, "uint32"), (np.uint64, "uint64"),
    ],
)  # fmt: skip
def test_every_type_reads_as_float32(tmp_path: Path, dtype: Any, name: str) -> None:
    values = np.arange(24).reshape(2, 3, 4).astype(dtype)
    save_file({"x": values}, tmp_path / "x.safetensors")
    with SafetensorsFile(tmp_path / "x.safetensors") as source:
        tensor = source["x"]
        assert (tensor.name, tensor.shape, tensor.dtype) == ("x", (2, 3, 4), name)
        assert tensor.file == tmp_path / "x.safetensors"
        for got, want in ((tensor.read(), values), (tensor.rows(1, 2), values[1:2])):
            assert got.dtype == np.float32
            assert got.flags.c_contiguous
            assert got.flags.writeable
            np.testing.assert_array_equal(got, want.astype(np.float32))


def test_every_bf16_pattern_becomes_the_float32_that_ml_dtypes_gives(tmp_path: Path) -> None:
    path = write_raw(
        tmp_path / "x.safetensors", {"x": entry("BF16", [2**16], [0, 2**17])}, BF16_TABLE.tobytes()
    )
    with SafetensorsFile(path) as source:
        got = source["x"].read()
    want = BF16_TABLE.view(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(got, want)
    assert source["x"].dtype == "bf16"


def test_data_may_start_at_an_odd_byte(tmp_path: Path) -> None:
    values = np.arange(2, dtype=np.float32)
    for pad in range(4):
        header = json.dumps({"x": entry()}).encode() + b" " * pad
        with SafetensorsFile(write_raw(tmp_path / "x", header, values.tobytes())) as source:
            np.testing.assert_array_equal(source["x"].read(), values)


def test_scalars_and_empty_tensors_are_read(tmp_path: Path) -> None:
    header = {"s": entry(shape=[], offsets=[0, 4]), "e": entry(shape=[3, 0], offsets=[4, 4])}
    path = write_raw(tmp_path / "x", header, np.float32(2.5).tobytes())
    with SafetensorsFile(path) as source:
        assert source["s"].read().shape == ()
        assert source["s"].read() == np.float32(2.5)
        assert source["e"].read().shape == (3, 0)
        assert source["e"].rows(1, 3).shape == (2, 0)


def test_the_mapping_lists_the_tensors_and_not_the_metadata(small: Path) -> None:
    with SafetensorsFile(small) as source:
        assert sorted(source) == ["a", "b"]
        assert len(source) == 2
        assert "__metadata__" not in source
        assert source.get("c") is None


@pytest.mark.parametrize(("start", "stop"), [(-1, 1), (0, 3), (2, 1), (3, 3)])
def test_rows_outside_of_the_tensor_are_refused(small: Path, start: int, stop: int) -> None:
    with SafetensorsFile(small) as source, pytest.raises(IndexError, match="a: rows"):
        source["a"].rows(start, stop)


def test_a_closed_source_reads_nothing_more(small: Path) -> None:
    source = SafetensorsFile(small)
    tensor = source["a"]
    kept = tensor.read()
    source.close()
    source.close()
    with pytest.raises(ValueError, match="closed"):
        tensor.read()
    assert kept[1, 2] == 5


@pytest.mark.parametrize(
    ("header", "data", "what"),
    [
        (b"", b"", "not valid JSON"),
        (b"{", b"", "not valid JSON"),
        (b"\xff\xfe", b"", "not valid JSON"),
        (b"[" * 100_000, b"", "not valid JSON"),
        (b'{"x": ' + b"9" * 5000 + b"}", b"", "not valid JSON"),
        (b'{"x": 1, "x": 2}', b"", "occurs twice"),
        ([], b"", "no JSON object"),
        ({"x": 1}, b"", "'x' has no description"),
        ({"x": {}}, b"", "'x' has no dtype"),
        ({"x": entry(dtype=["F32"])}, bytes(8), "'x' has no dtype"),
        ({"x": entry(shape=None)}, bytes(8), "'x': the shape"),
        ({"x": entry(shape="22")}, bytes(8), "'x': the shape"),
        ({"x": entry(shape=[-2])}, bytes(8), "'x': the shape"),
        ({"x": entry(shape=[2.0])}, bytes(8), "'x': the shape"),
        ({"x": entry(shape=[True, 2])}, bytes(8), "'x': the shape"),
        ({"x": entry(shape=[2**40, 2**40])}, bytes(8), "'x': the shape"),
        ({"x": entry(shape=[0, 2**70], offsets=[0, 0])}, b"", "'x': the shape"),
        ({"x": entry(shape=[1] * 40)}, bytes(4), "'x': the shape"),
        ({"x": entry(offsets=[0])}, bytes(8), "'x': data_offsets"),
        ({"x": entry(offsets=[8, 0])}, bytes(8), "'x': data_offsets"),
        ({"x": entry(offsets=[-8, 0])}, bytes(8), "'x': data_offsets"),
        ({"x": entry(offsets=["0", "8"])}, bytes(8), "'x': data_offsets"),
        ({"x": entry(shape=[3])}, bytes(8), "'x': F32 of shape"),
        ({"x": entry()}, bytes(7), "'x' ends at byte"),
        ({"x": entry()}, bytes(9), "the header needs"),
        ({"x": entry(offsets=[4, 12])}, bytes(12), "'x' follows a gap"),
        ({"x": entry(), "y": entry(offsets=[4, 12])}, bytes(12), "'y' overlaps"),
        ({"x": entry(), "y": entry()}, bytes(8), "overlaps"),
        ({}, b"tail", "the header needs"),
    ],
)  # fmt: skip
def test_an_inconsistent_header_is_a_checkpoint_error(
    tmp_path: Path, header: Any, data: bytes, what: str
) -> None:
    path = write_raw(tmp_path / "bad.safetensors", header, data)
    with pytest.raises(CheckpointError, match=what) as caught:
        SafetensorsFile(path)
    assert str(path) in caught.value.message
    assert caught.value.remedy


@pytest.mark.parametrize("dtype", ["F8_E4M3", "F4", "C64", "future"])
def test_an_unknown_type_is_refused_by_name(tmp_path: Path, dtype: str) -> None:
    path = write_raw(tmp_path / "x", {"w": entry(dtype)}, bytes(8))
    with pytest.raises(UnsupportedError, match=f"'w' has dtype '{dtype}'"):
        SafetensorsFile(path)


@pytest.mark.parametrize("size", [2**63, 2**64 - 1, 100_000_001, 10_000])
def test_a_header_length_beyond_the_file_is_refused(small: Path, size: int) -> None:
    small.write_bytes(struct.pack("<Q", size) + small.read_bytes()[8:])
    with pytest.raises(CheckpointError, match="header claims"):
        SafetensorsFile(small)


def test_every_truncation_is_found(small: Path) -> None:
    whole = small.read_bytes()
    for size in range(len(whole)):
        small.write_bytes(whole[:size])
        with pytest.raises(CheckpointError):
            SafetensorsFile(small)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_a_flipped_header_bit_is_refused_or_leaves_a_readable_file(
    small: Path, data: st.DataObject
) -> None:
    whole = bytearray(small.read_bytes())
    header_bits = 8 * (8 + int.from_bytes(whole[:8], "little"))
    bit = data.draw(st.integers(0, header_bits - 1))
    whole[bit // 8] ^= 1 << bit % 8
    flipped = small.with_name("flipped.safetensors")
    flipped.write_bytes(whole)
    try:
        source = SafetensorsFile(flipped)
    except CheckpointError:
        return
    for tensor in source.values():
        assert tensor.read().shape == tensor.shape


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(junk=st.binary(max_size=200))
def test_arbitrary_bytes_never_raise_anything_else(tmp_path: Path, junk: bytes) -> None:
    path = tmp_path / "junk.safetensors"
    for content in (junk, struct.pack("<Q", len(junk)) + junk):
        path.write_bytes(content)
        with pytest.raises(CheckpointError):
            SafetensorsFile(path)
