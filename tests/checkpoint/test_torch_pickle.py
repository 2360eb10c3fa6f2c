"""Hostile and damaged pickles are refused by name, whatever they try, and nothing is executed."""

from __future__ import annotations

import builtins
import os
import pickle
import struct
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch_zip_writer import (
    ORDERED,
    Build,
    Call,
    Global,
    Persistent,
    Raw,
    TorchFile,
    assemble,
    storage,
    tensor,
)

from edge_runtime.errors import CheckpointError
from export.checkpoint.torch_pickle import (
    PickledStorage,
    PickledTensor,
    PickleRefusedError,
    load_state,
)
from export.checkpoint.torch_zip import TorchZip

FLOATS = storage("FloatStorage", "0", 4)
REBUILD = Global("torch._utils._rebuild_tensor_v2")
PARAMETER = Global("torch._utils._rebuild_parameter")


class Runs:
    """Pickles as a call of any function."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


def refuse(pickled: bytes, what: str = "it ") -> None:
    with pytest.raises(PickleRefusedError, match=what):
        load_state(pickled)


def attacks(marker: Path) -> list[tuple[Any, str]]:
    touch = f"touch {marker}"
    return [
        (Runs(os.system, touch), r"'(posix|nt)\.system'"),
        (Runs(builtins.eval, f"open({str(marker)!r}, 'w')"), r"'(__builtin__|builtins)\.eval'"),
        (Runs(builtins.getattr, 1, "real"), r"'(__builtin__|builtins)\.getattr'"),
        (Runs(os.mkdir, str(marker)), "mkdir"),
        ({"state_dict": {"w": [({"x": Runs(os.system, touch)},)]}}, "system"),
        (OrderedDict(a=Runs(os.system, touch)), "system"),
    ]


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("number", range(len(attacks(Path()))))
def test_a_call_of_a_foreign_function_is_refused_by_its_name_and_never_made(
    tmp_path: Path, protocol: int, number: int
) -> None:
    marker = tmp_path / "executed"
    value, name = attacks(marker)[number]
    path = TorchFile().write(tmp_path / "x.pth", pickle.dumps(value, protocol))
    with pytest.raises(CheckpointError, match=name) as caught:
        TorchZip(path)
    assert str(path) in caught.value.message
    assert "only tensors and plain data are allowed" in caught.value.message
    assert not marker.exists()


@pytest.mark.parametrize(
    "name",
    [
        "os.system", "posix.system", "builtins.exec", "subprocess.Popen", "torch.load",
        "torch.hub.load", "torch.serialization.load", "torch._utils._rebuild_tensor_v3",
        "torch._utils.__builtins__", "collections.OrderedDict.__reduce__",
        "collections.defaultdict", "_codecs.encode", "numpy.core.multiarray.scalar",
        "torch.storage._load_from_bytes", "torch.FloatStorage.__init__",
        "torch. Size", "torch.Size\r",
    ],
)  # fmt: skip
def test_a_global_outside_of_the_list_is_refused_by_name(name: str) -> None:
    refuse(assemble({"w": Global(name)}), "only tensors and plain data")
    module, _, attribute = name.rpartition(".")
    by_stack = Raw(assemble(module)[2:-1] + assemble(attribute)[2:-1] + b"\x93")
    refuse(assemble({"w": by_stack}), "only tensors and plain data")


def test_a_global_that_is_only_mentioned_is_refused_even_if_it_is_dropped() -> None:
    refuse(assemble([Global("os.system"), 1]), r"os\.system")


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (Call(Global("collections.OrderedDict"), ([],)), "OrderedDict with arguments"),
        (Call(Global("collections.OrderedDict"), []), "without a tuple"),
        (Call(Global("torch.Size"), ()), "torch.Size with wrong"),
        (Call(Global("torch.Size"), (3,)), "torch.Size with wrong"),
        (Call(Global("torch.Size"), ((-1,),)), "torch.Size with wrong"),
        (Call(Global("torch.FloatStorage"), (10**9,)), "asks to call torch.FloatStorage"),
        (Call(Global("torch.storage.UntypedStorage"), (8,)), "asks to call"),
        (Call(Global("torch.float32"), ()), "asks to call torch.float32"),
        (Call("text", ()), "asks to call str"),
        (Call(ORDERED, ()), "asks to call OrderedDict"),
        (Call(REBUILD, ()), "wrong arguments"),
        (Call(REBUILD, (1, 2, 3)), "wrong arguments"),
        (Call(REBUILD, (FLOATS, 0, (4,), (1,), False)), "wrong arguments"),
        (Call(REBUILD, (Global("torch.FloatStorage"), 0, (4,), (1,), False, ORDERED)), "wrong"),
        (Call(REBUILD, (FLOATS, "0", (4,), (1,), False, ORDERED)), "wrong arguments"),
        (Call(REBUILD, (FLOATS, 0, [4], [1], False, ORDERED)), "wrong arguments"),
        (Call(REBUILD, (FLOATS, 0, (4,), (1,), 0, ORDERED)), "wrong arguments"),
        (Call(REBUILD, (FLOATS, 0, (4,), (1,), False, {"h": 1})), "wrong arguments"),
        (Call(REBUILD, (FLOATS, 0, (4,), (1,), False, ORDERED, None, None)), "wrong arguments"),
        (Call(REBUILD, (FLOATS, 0, (4,), (1,), False, ORDERED, {"neg": True})), "conjugated"),
        (tensor(FLOATS, -1, (4,), (1,)), "offset or strides"),
        (tensor(FLOATS, 2**60, (4,), (1,)), "offset or strides"),
        (tensor(FLOATS, 0, (4,), (-1,)), "offset or strides"),
        (tensor(FLOATS, 0, (4,), (2**60,)), "offset or strides"),
        (tensor(FLOATS, 0, (4,), ()), "offset or strides"),
        (tensor(FLOATS, 0, (-4,), (1,)), "shape"),
        (tensor(FLOATS, 0, (1,) * 33, (1,) * 33), "shape"),
        (tensor(FLOATS, 0, (2**40, 2**40), (0, 0)), "shape"),
        (tensor(FLOATS, 0, ("4",), (1,)), "shape"),  # type: ignore[arg-type]
        (Call(PARAMETER, (1, True, ORDERED)), "wrong arguments"),
        (Call(PARAMETER, ()), "wrong arguments"),
        (Persistent("0"), "no storage"),
        (Persistent(("storage",)), "no storage"),
        (Persistent(("module", Global("torch.FloatStorage"), "0", "cpu", 4)), "no storage"),
        (Persistent(("storage", "FloatStorage", "0", "cpu", 4)), "no storage"),
        (Persistent(("storage", Global("torch.Size"), "0", "cpu", 4)), "no storage"),
        (Persistent(("storage", Global("torch.FloatStorage"), 0, "cpu", 4)), "no storage"),
        (storage("FloatStorage", "0", -1), "no storage"),
        (storage("FloatStorage", "0", 10**2000 // 10**1500), "no storage"),
        (Build({}, {}), "BUILD"),
        (Build(ORDERED, 1), "BUILD"),
        (Build(ORDERED, ({}, {})), "BUILD"),
        (Build(REBUILD, {"__code__": 1}), "BUILD"),
        (Build(FLOATS, {"dtype": "float32"}), "BUILD"),
        (Raw(b"}N(e"), "appends"),
        (Raw(b"]NNs"), "sets items"),
        (Raw(b"}(Nu"), "sets items"),
    ],
)
def test_misuse_of_what_is_allowed_is_refused(value: Any, what: str) -> None:
    refuse(assemble({"w": value}), what)


@pytest.mark.parametrize(
    ("code", "what"),
    [
        (b"(iposix\nsystem\n", r"posix\.system"),
        (b"(S'id'\niposix\nsystem\n", "STRING"),
        (b"(ccollections\nOrderedDict\no", "instruction OBJ"),
        (b"ccollections\nOrderedDict\n)\x81", "instruction NEWOBJ"),
        (b"ccollections\nOrderedDict\n)}\x92", "instruction NEWOBJ_EX"),
        (b"\x82\x01", "instruction EXT1"),
        (b"\x84\xff\xff\xff\x7f", "instruction EXT4"),
        (b"P0\n", "instruction PERSID"),
        (b"\x8f", "instruction EMPTY_SET"),
        (b"\x96" + struct.pack("<Q", 2**62), "damaged"),
        (b"\x8e" + struct.pack("<Q", 2**62), "damaged"),
        (b"\x8d" + struct.pack("<Q", 2**63), "damaged"),
        (b"\x8b\xff\xff\xff\x7f", "damaged"),
        (b"\x8b\xff\xff\xff\xff", "damaged"),
        (b"\x97", "NEXT_BUFFER"),
        (b"\xff", "damaged"),
        (b"0", "instruction POP"),
        (b"I" + b"9" * 10_000 + b"\n", "damaged"),
        (b"V\\ud800\\u\n", "damaged"),
        (b"h\x00", "recalls value 0"),
        (b"j\xff\xff\xff\xff", "recalls value"),
        (b"t", "never opened"),
        (b"(\x85", "takes a value"),
        (b"(q\x00", "takes a value"),
        (b"\x93", "takes a value"),
        (b"NN\x93", "something else than text"),
        (b"R", "takes a value"),
        (b"(", "takes a value"),
        (b"", "takes a value"),
    ],
)
def test_instructions_that_tensors_do_not_need_are_refused(code: bytes, what: str) -> None:
    refuse(b"\x80\x02" + code + b".", what)


def test_a_pickle_that_ends_early_is_refused() -> None:
    whole = assemble({"w": tensor(FLOATS, 0, (4,), (1,)), "n": [1, (2, "x")]})
    for size in range(len(whole)):
        refuse(whole[:size])


def test_a_huge_memo_index_allocates_nothing() -> None:
    pickled = b"\x80\x02N" + b"r\xff\xff\xff\xff" + b"j\xff\xff\xff\xff" + b"."
    assert load_state(pickled) is None


def test_deep_nesting_as_a_key_or_argument_is_refused_without_recursion() -> None:
    nested = b")" + b"\x85" * 300_000
    refuse(b"\x80\x02}" + nested + b"Ns.", "tuple as a key")
    refuse(b"\x80\x02ctorch\nSize\n" + nested + b"\x85R.", "torch.Size")
    refuse(b"\x80\x02" + nested + b"Q.", "no storage")


def test_deep_nesting_as_a_value_is_ignored_without_recursion(tmp_path: Path) -> None:
    weights = assemble(tensor(FLOATS, 0, (4,), (1,)))[2:-1]
    nested = b"]" * 300_000 + b"a" * 299_999
    pickled = b"\x80\x02}X\x01\x00\x00\x00w" + weights + b"sX\x01\x00\x00\x00d" + nested + b"s."
    path = TorchFile(records={"0": bytes(16)}).write(tmp_path / "x", pickled)
    with TorchZip(path) as source:
        assert list(source) == ["w"]


def test_a_value_that_contains_itself_is_harmless() -> None:
    value = load_state(b"\x80\x02]q\x00h\x00a.")
    assert isinstance(value, list)
    assert value[0] is value


@pytest.mark.parametrize("key", [2**61 - 1, -1, 2.5, None, (), (1,), [], {}, ORDERED, FLOATS])
def test_keys_that_could_be_made_to_collide_or_recurse_are_refused(key: Any) -> None:
    item = Raw(assemble(key)[2:-1] + b"N")
    refuse(b"\x80\x02}" + assemble(item)[2:-1] + b"s.", "as a key")


def test_tensors_parameters_and_storages_come_out_as_plain_descriptions() -> None:
    described = PickledTensor(PickledStorage("0", "f32", 4), 1, (3,), (1,))
    plain = tensor(FLOATS, 1, (3,), (1,))
    value = {"a": plain, "b": Call(PARAMETER, (plain, True, ORDERED)), "c": [FLOATS]}
    assert load_state(assemble(value)) == {
        "a": described, "b": described, "c": [described.storage],
    }  # fmt: skip


plain_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers(0, 2**31), inner, max_size=4)
    ),
    max_leaves=20,
)


@settings(deadline=None)
@given(value=plain_values, protocol=st.integers(2, 5))
def test_plain_data_comes_out_as_pickle_would_give_it(value: Any, protocol: int) -> None:
    assert load_state(pickle.dumps(value, protocol)) == value


OPCODES = st.sampled_from([bytes([code]) for code in range(256)] + [b"ctorch\nSize\n", b"\x80\x02"])


@pytest.mark.filterwarnings("ignore:invalid")
@settings(deadline=None, max_examples=500)
@given(pieces=st.lists(OPCODES | st.binary(max_size=4), max_size=30))
@example(pieces=[b"(((", b"tttR"])
def test_arbitrary_instructions_never_raise_anything_else(pieces: list[bytes]) -> None:
    try:
        load_state(b"".join(pieces) + b".")
    except PickleRefusedError:
        return


@pytest.mark.filterwarnings("ignore:invalid")
@settings(deadline=None, max_examples=300)
@given(data=st.data())
def test_changed_bytes_of_a_good_pickle_never_raise_anything_else(data: st.DataObject) -> None:
    whole = bytearray(
        assemble({"w": Call(PARAMETER, (tensor(FLOATS, 0, (2, 2), (2, 1)), True, ORDERED))})
    )
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        load_state(bytes(whole))
    except PickleRefusedError:
        return
