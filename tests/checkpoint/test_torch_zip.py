"""Reading torch.save files without torch: real ones, built ones, damaged ones."""

from __future__ import annotations

import io
import math
import struct
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch_zip_writer import (
    ORDERED,
    STORAGE_OF,
    Build,
    Call,
    Global,
    TorchFile,
    assemble,
    storage,
    tensor,
)

from edge_runtime.errors import CheckpointError, UnsupportedError
from export.checkpoint.torch_zip import TorchZip

FIXTURES = Path(__file__).parent / "fixtures"
BASE = np.arange(12, dtype=np.float32).reshape(3, 4) / 4


def refuse(path: Path, what: str, kind: type[CheckpointError] = CheckpointError) -> None:
    with pytest.raises(kind, match=what) as caught:
        TorchZip(path)
    assert str(path) in caught.value.message
    assert caught.value.remedy


@pytest.mark.parametrize("file", ["nested.pth", "protocol4.pth"])
def test_a_real_file_gives_what_torch_stored(file: str) -> None:
    with TorchZip(FIXTURES / file) as source:
        want = {
            "f32": BASE, "transposed": BASE.T, "last_rows": BASE[1:], "bf16": BASE, "f16": BASE,
            "parameter": BASE[:, 0], "steps": np.float32(7),
        }  # fmt: skip
        assert list(source) == list(want)
        for name, values in want.items():
            got = source[name].read()
            assert source[name].shape == values.shape
            assert got.flags.c_contiguous
            np.testing.assert_array_equal(got, values)
        np.testing.assert_array_equal(source["transposed"].rows(1, 3), BASE.T[1:3])
        dtypes = [source[name].dtype for name in ("f32", "bf16", "f16", "steps")]
        assert dtypes == ["f32", "bf16", "f16", "int64"]


def test_a_real_module_state_keeps_its_buffers_and_drops_its_metadata() -> None:
    with TorchZip(FIXTURES / "module.pth") as source:
        assert sorted(source) == [
            "bias", "num_batches_tracked", "running_mean", "running_var", "weight",
        ]  # fmt: skip
        assert len(source) == 5
        np.testing.assert_array_equal(source["running_var"].read(), [1, 1])


def test_legacy_files_are_refused_by_name_with_a_remedy(tmp_path: Path) -> None:
    refuse(FIXTURES / "legacy.pth", "before torch 1.6", UnsupportedError)
    tar = tmp_path / "tar.pth"
    tar.write_bytes(bytes(257) + b"ustar\0" + bytes(1000))
    refuse(tar, "before torch 1.6", UnsupportedError)


def test_torchscript_is_refused_by_name() -> None:
    refuse(FIXTURES / "script.pth", "TorchScript", UnsupportedError)


@pytest.mark.parametrize("dtype", sorted(set(STORAGE_OF) - {"bf16"}))
@pytest.mark.parametrize("byteorder", [b"little", b"big", None])
def test_every_type_reads_in_every_byte_order(
    tmp_path: Path, dtype: str, byteorder: bytes | None
) -> None:
    values = np.arange(6).reshape(2, 3).astype(dtype)
    file = TorchFile(byteorder=byteorder)
    path = file.write(tmp_path / "x", {"x": file.add(values)})
    with TorchZip(path) as source:
        np.testing.assert_array_equal(source["x"].read(), values.astype(np.float32))


@pytest.mark.parametrize("byteorder", [b"little", b"big"])
def test_every_bf16_pattern_is_exact(tmp_path: Path, byteorder: bytes) -> None:
    bits = np.arange(2**16, dtype=np.uint16)
    file = TorchFile(byteorder=byteorder)
    with TorchZip(file.write(tmp_path / "x", {"x": file.add(bits, bf16=True)})) as source:
        want = bits.view(ml_dtypes.bfloat16).astype(np.float32)
        np.testing.assert_array_equal(source["x"].read(), want)


def test_an_unknown_byte_order_is_refused(tmp_path: Path) -> None:
    file = TorchFile(byteorder=b"middle")
    refuse(file.write(tmp_path / "x", {"x": file.add(BASE)}), "byte order b'middle'")


def test_state_dict_is_unwrapped_and_other_values_are_left_out(tmp_path: Path) -> None:
    file = TorchFile()
    state = {"x": file.add(BASE), "name": "vae", "rates": [1, 2.5, None], "size": (1,), "on": True}
    path = file.write(tmp_path / "x", {"epoch": 3, "state_dict": state, "optimizer": {0: None}})
    with TorchZip(path) as source:
        assert list(source) == ["x"]
    with TorchZip(file.write(tmp_path / "y", state)) as source:
        assert list(source) == ["x"]


def test_attributes_of_a_state_dict_sizes_and_dtypes_are_tolerated(tmp_path: Path) -> None:
    file = TorchFile()
    value = {
        "x": file.add(BASE),
        "meta": Build(ORDERED, {"_metadata": ORDERED}),
        "size": Call(Global("torch.Size"), ((2, 3),)),
        "dtype": Global("torch.bfloat16"),
    }
    with TorchZip(file.write(tmp_path / "x", value)) as source:
        assert list(source) == ["x"]


def test_a_file_without_tensors_in_the_known_places_is_refused(tmp_path: Path) -> None:
    file = TorchFile()
    for value in ({}, {"a": 1}, {"state_dict": {}}, {"model": {"x": file.add(BASE)}}):
        refuse(file.write(tmp_path / "x", value), "holds a tensor")


@pytest.mark.parametrize("value", [None, 3, "x", [], (), {"state_dict": None}])
def test_a_top_value_that_is_no_dictionary_is_refused(tmp_path: Path, value: Any) -> None:
    refuse(TorchFile().write(tmp_path / "x", value), "no dictionary of tensors")


def test_a_tensor_without_a_name_is_refused(tmp_path: Path) -> None:
    file = TorchFile()
    refuse(file.write(tmp_path / "x", {0: file.add(BASE)}), "filed under 0")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_views_honour_offset_and_strides_and_never_leave_their_storage(
    tmp_path: Path, data: st.DataObject
) -> None:
    shape = tuple(data.draw(st.lists(st.integers(0, 4), max_size=4)))
    strides = tuple(data.draw(st.integers(0, 6)) for _ in shape)
    offset = data.draw(st.integers(0, 8))
    numel = data.draw(st.integers(1, 60))
    elements = np.arange(numel, dtype=np.float32)
    file = TorchFile(records={"7": elements.tobytes()})
    value = {"x": tensor(storage("FloatStorage", "7", numel), offset, shape, strides)}
    path = file.write(tmp_path / "x", value)
    flat = [
        offset + sum(i * step for i, step in zip(index, strides, strict=True))
        for index in np.ndindex(shape)
    ]
    if flat and max(flat) >= numel:
        refuse(path, "reaches element")
        return
    with TorchZip(path) as source:
        want = elements[flat].reshape(shape) if flat else np.empty(shape, np.float32)
        np.testing.assert_array_equal(source["x"].read(), want)
        if shape:
            half = shape[0] // 2
            np.testing.assert_array_equal(source["x"].rows(half, shape[0]), want[half:])


def test_tensors_may_share_a_storage(tmp_path: Path) -> None:
    file = TorchFile(records={"0": BASE.tobytes()})
    stored = storage("FloatStorage", "0", 12)
    value = {"a": tensor(stored, 0, (3, 4), (4, 1)), "b": tensor(stored, 4, (4, 2), (1, 4))}
    with TorchZip(file.write(tmp_path / "x", value)) as source:
        np.testing.assert_array_equal(source["a"].read(), BASE)
        np.testing.assert_array_equal(source["b"].read(), BASE[1:].T)


@pytest.mark.parametrize(
    ("stored", "what"),
    [
        (storage("FloatStorage", "1", 12), "record 'data/1' is missing"),
        (storage("FloatStorage", "../data.pkl", 12), "is missing"),
        (storage("FloatStorage", "0", 13), "48 bytes instead of 52"),
        (storage("FloatStorage", "0", 11), "48 bytes instead of 44"),
        (storage("DoubleStorage", "0", 12), "48 bytes instead of 96"),
        (storage("storage.UntypedStorage", "0", 48), "no element type"),
    ],
)
def test_a_storage_that_does_not_match_its_record_is_refused(
    tmp_path: Path, stored: Any, what: str
) -> None:
    file = TorchFile(records={"0": BASE.tobytes()})
    refuse(file.write(tmp_path / "x", {"w": tensor(stored, 0, (2,), (1,))}), what)


def test_compressed_files_are_refused_by_name(tmp_path: Path) -> None:
    file = TorchFile()
    path = file.write(tmp_path / "x", {"x": file.add(BASE)}, zipfile.ZIP_DEFLATED)
    refuse(path, "compressed", UnsupportedError)


def repack(path: Path, records: list[tuple[str, bytes]]) -> Path:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in records:
            archive.writestr(name, content)
    path.write_bytes(buffer.getvalue())
    return path


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    ("names", "what"),
    [
        ([], "no zip archive"),
        (["readme.txt"], "0 records named data.pkl"),
        (["data.pkl"], "0 records"),
        (["a/b/data.pkl"], "0 records"),
        (["a/data.pkl", "b/data.pkl"], "2 records"),
        (["a/data.pkl", "a/data.pkl"], "2 records"),
        (["a/data.pkl", "a/data/0", "a/data/0"], "two records of the same name"),
    ],
)
def test_other_zip_archives_are_refused(tmp_path: Path, names: list[str], what: str) -> None:
    refuse(repack(tmp_path / "x", [(name, b"N.") for name in names]), what)


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x"
    for content in (b"x", b"PK", b"PK\x03\x04", b"\x80\x02}q\x00.", b"<html>" * 100):
        path.write_bytes(content)
        refuse(path, "zip")


def test_a_changed_pickle_is_found_by_its_checksum(tmp_path: Path) -> None:
    whole = (FIXTURES / "module.pth").read_bytes()
    path = tmp_path / "x"
    path.write_bytes(whole.replace(b"running_var", b"running_vat", 1))
    refuse(path, "checksum")


def test_a_huge_pickle_is_refused_unread(tmp_path: Path) -> None:
    pickled = b"\x80\x02" + b"]" * (17 * 2**20) + b"."
    refuse(TorchFile().write(tmp_path / "x", pickled), "too many to read")


@pytest.mark.parametrize("file", ["nested.pth", "module.pth"])
def test_every_truncation_is_found(tmp_path: Path, file: str) -> None:
    whole = (FIXTURES / file).read_bytes()
    path = tmp_path / "x"
    for size in range(1, len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(CheckpointError):
            TorchZip(path)


@pytest.mark.filterwarnings("ignore")
def test_a_flipped_byte_is_refused_or_leaves_every_tensor_in_place(tmp_path: Path) -> None:
    whole = (FIXTURES / "module.pth").read_bytes()
    path = tmp_path / "x"
    with TorchZip(FIXTURES / "module.pth") as source:
        shapes = {name: tensor.shape for name, tensor in source.items()}
    opened = 0
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            source = TorchZip(path)
        except CheckpointError:
            continue
        with source:
            opened += 1
            assert {name: tensor.read().shape for name, tensor in source.items()} == shapes
    # Alignment padding, storage bytes and unused header fields are all that may change unseen.
    assert 0 < opened < len(whole)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_a_damaged_zip_directory_never_raises_anything_else(
    tmp_path: Path, data: st.DataObject
) -> None:
    whole = bytearray((FIXTURES / "nested.pth").read_bytes())
    directory = whole.index(b"PK\x01\x02")
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(directory, len(whole) - 1))
        whole[at] = data.draw(st.integers(0, 255))
    path = tmp_path / "x"
    path.write_bytes(whole)
    try:
        source = TorchZip(path)
    except CheckpointError:
        return
    for tensor_ in source.values():
        assert tensor_.read().shape == tensor_.shape


@pytest.mark.parametrize("offset", [0, 5, 2**31, 2**32 - 2])
def test_a_record_that_is_not_where_the_directory_says_is_refused(
    tmp_path: Path, offset: int
) -> None:
    file = TorchFile()
    path = file.write(tmp_path / "x", {"x": file.add(BASE)})
    whole = bytearray(path.read_bytes())
    # The header offset is the last field before the name in a directory entry.
    name_at = whole.rindex(b"archive/data/0")
    struct.pack_into("<I", whole, name_at - 4, offset)
    path.write_bytes(whole)
    with pytest.raises(CheckpointError):
        TorchZip(path)


def test_a_closed_file_reads_nothing_more() -> None:
    source = TorchZip(FIXTURES / "module.pth")
    weight = source["weight"]
    source.close()
    with pytest.raises(ValueError, match="closed"):
        weight.read()


def test_files_of_the_installed_torch_give_equal_values(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(1)
    base = torch.randn(4, 5, 6, generator=generator)
    floats = [torch.float32, torch.float16, torch.bfloat16, torch.float64]
    integers = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool]
    state = {str(dtype): base.to(dtype) for dtype in floats}
    state |= {str(dtype): (base * 9).abs().to(dtype) for dtype in integers}
    state |= {
        "permuted": base.permute(2, 0, 1),
        "sliced": base[1:, ::2, 3:],
        "expanded": base[:1].expand(3, 5, 6),
        "channels_last": base[None].to(memory_format=torch.channels_last),
        "scalar": base[0, 0, 0],
        "empty": base[:0],
        "parameter": torch.nn.Parameter(base[0]),
    }
    for value in (state, {"state_dict": state}):
        for protocol in (2, 3, 4, 5):
            torch.save(value, tmp_path / "söme name.pth", pickle_protocol=protocol)
            with TorchZip(tmp_path / "söme name.pth") as source:
                assert list(source) == list(state)
                for name, want in state.items():
                    got = source[name].read()
                    np.testing.assert_array_equal(got, want.detach().float().numpy())
                    if math.prod(got.shape) and got.shape:
                        np.testing.assert_array_equal(source[name].rows(0, 1), got[:1])


def test_a_whole_module_saved_by_the_installed_torch_is_refused(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save(torch.nn.Linear(2, 2), tmp_path / "x")
    refuse(tmp_path / "x", "'torch.nn.modules.linear.Linear'")


def test_the_assembler_agrees_with_the_pickle_module() -> None:
    import pickle

    value = {"a": [1, -1, 2.5, None, True], "b": (1, "ü", {}), "c": 2**70}
    assert pickle.loads(assemble(value)) == value
