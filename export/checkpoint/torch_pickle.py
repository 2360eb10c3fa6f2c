"""Interpreter for the pickle inside a torch checkpoint that can build nothing but plain data.

``pickle`` itself is not used: even with a strict ``find_class`` its C code can be driven into
huge allocations or a stack overflow. Here every instruction and every global is one table entry,
no callable of the file is ever called, and whatever is not in the tables is refused by name.
"""

from __future__ import annotations

import pickletools
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, cast

from export.checkpoint.mapped_tensor import shape_problem

_STORAGES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "FloatStorage": "f32", "HalfStorage": "f16", "BFloat16Storage": "bf16",
        "DoubleStorage": "float64", "BoolStorage": "bool", "ByteStorage": "uint8",
        "CharStorage": "int8", "ShortStorage": "int16", "IntStorage": "int32",
        "LongStorage": "int64",
    }
)  # fmt: skip
_TORCH_DTYPES: Final = frozenset(
    {
        "float32", "float64", "float16", "bfloat16", "complex64", "complex128", "bool",
        "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    }
)  # fmt: skip
_GLOBALS: Final = frozenset(
    {
        "collections.OrderedDict", "torch.Size",
        "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_parameter",
        "torch.storage.UntypedStorage", "torch.storage.TypedStorage",
    }
    | {f"torch.{name}" for name in _STORAGES}
    | {f"torch.storage.{name}" for name in _STORAGES}
    | {f"torch.{name}" for name in _TORCH_DTYPES}
)  # fmt: skip
# Offsets, strides and sizes count elements; none is larger in a file that fits on a disk.
_MAX_COUNT: Final = 2**48
# Larger integer keys could be chosen to collide in a dict.
_MAX_KEY: Final = 2**32


class PickleRefusedError(ValueError):
    """A pickle that is damaged or asks for something else than tensors and plain data."""


@dataclass(frozen=True)
class PickledStorage:
    """Reference to a storage record; ``dtype`` is empty if the file does not tell it."""

    key: str
    dtype: str
    numel: int


@dataclass(frozen=True)
class PickledTensor:
    """A view of a storage; offset and strides count elements."""

    storage: PickledStorage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class _Global:
    """A whitelisted global by its dotted name; never the object itself."""

    name: str


class _Mark:
    """Start of a group of items on the stack."""


def load_state(pickled: bytes) -> object:
    """Value of a pickle: dicts, lists, tuples, scalars and ``PickledTensor``.

    Args:
        pickled: Content of ``data.pkl``, protocol 2 to 5. It takes up to about 100 times its
            size while it runs, so the caller bounds it.

    Raises:
        PickleRefusedError: Damaged, or an instruction or global that is not allowed.
    """
    machine = _Machine()
    try:
        for opcode, argument, _ in pickletools.genops(pickled):
            if opcode.name == "STOP":
                return machine.pop()
            machine.step(opcode.name, argument)
    except PickleRefusedError:
        raise
    except (ValueError, LookupError, OverflowError) as error:
        raise PickleRefusedError(f"it is damaged ({error})") from error
    raise PickleRefusedError("it ends early")


class _Machine:
    """Stack and memo of one run."""

    def __init__(self) -> None:
        self._stack: list[object] = []
        self._memo: dict[int, object] = {}

    def pop(self) -> object:
        if not self._stack or isinstance(self._stack[-1], _Mark):
            raise PickleRefusedError("it takes a value that is not there")
        return self._stack.pop()

    def step(self, name: str, argument: Any) -> None:
        if name in _LITERALS:
            self._stack.append(argument)
        elif name in _FIXED:
            self._stack.append(_FIXED[name]())
        elif name in _STEPS:
            _STEPS[name](self, argument)
        elif name == "INST":
            _allowed_global(*str(argument).split(" ", 1))
            raise PickleRefusedError("it asks to build an object (INST)")
        else:
            raise PickleRefusedError(f"it contains instruction {name}, which tensors do not need")

    def ignore(self, _: Any) -> None:
        """PROTO and FRAME carry nothing."""

    def global_(self, argument: str) -> None:
        self._stack.append(_allowed_global(*argument.split(" ", 1)))

    def stack_global(self, _: Any) -> None:
        name, module = self.pop(), self.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise PickleRefusedError("it names a global by something else than text")
        self._stack.append(_allowed_global(module, name))

    def put(self, argument: int) -> None:
        self._memo[argument] = self._top()

    def memoize(self, _: Any) -> None:
        self._memo[len(self._memo)] = self._top()

    def get(self, argument: int) -> None:
        if argument not in self._memo:
            raise PickleRefusedError(f"it recalls value {argument}, which it never stored")
        self._stack.append(self._memo[argument])

    def tuple_of_marked(self, _: Any) -> None:
        self._stack.append(tuple(self._pop_marked()))

    def tuple1(self, _: Any) -> None:
        self._stack.append((self.pop(),))

    def tuple2(self, _: Any) -> None:
        last, first = self.pop(), self.pop()
        self._stack.append((first, last))

    def tuple3(self, _: Any) -> None:
        last, middle, first = self.pop(), self.pop(), self.pop()
        self._stack.append((first, middle, last))

    def append(self, _: Any) -> None:
        self._extend([self.pop()])

    def appends(self, _: Any) -> None:
        self._extend(self._pop_marked())

    def set_item(self, _: Any) -> None:
        value, key = self.pop(), self.pop()
        self._update([key, value])

    def set_items(self, _: Any) -> None:
        self._update(self._pop_marked())

    def persistent_id(self, _: Any) -> None:
        self._stack.append(_storage(self.pop()))

    def reduce(self, _: Any) -> None:
        arguments, function = self.pop(), self.pop()
        if not isinstance(function, _Global) or function.name not in _CALLS:
            what = function.name if isinstance(function, _Global) else type(function).__name__
            raise PickleRefusedError(f"it asks to call {what}, which is no way to build a tensor")
        if not isinstance(arguments, tuple):
            raise PickleRefusedError(f"it calls {function.name} without a tuple of arguments")
        self._stack.append(_CALLS[function.name](arguments))

    def build(self, _: Any) -> None:
        state = self.pop()
        # A state dict carries `_metadata` as an attribute; nothing of it is needed here.
        if not isinstance(self._top(), OrderedDict) or not isinstance(state, dict):
            raise PickleRefusedError("it asks to set the inner state of an object (BUILD)")

    def _top(self) -> object:
        value = self.pop()
        self._stack.append(value)
        return value

    def _pop_marked(self) -> list[object]:
        items: list[object] = []
        while self._stack:
            item = self._stack.pop()
            if isinstance(item, _Mark):
                items.reverse()
                return items
            items.append(item)
        raise PickleRefusedError("it closes a group that it never opened")

    def _extend(self, items: list[object]) -> None:
        target = self._top()
        if not isinstance(target, list):
            raise PickleRefusedError(f"it appends to a {type(target).__name__}")
        target.extend(items)

    def _update(self, items: list[object]) -> None:
        target = self._top()
        if not isinstance(target, dict) or len(items) % 2:
            raise PickleRefusedError(f"it sets items of a {type(target).__name__}")
        for key, value in zip(items[::2], items[1::2], strict=True):
            # Hashing anything nested would recurse as deep as the file likes.
            if not isinstance(key, str) and not _is_count(key, _MAX_KEY):
                raise PickleRefusedError(f"it uses a {type(key).__name__} as a key")
            target[key] = value


def _allowed_global(module: str, name: str = "") -> _Global:
    full_name = f"{module}.{name}"
    if full_name not in _GLOBALS:
        # Python writes `os` as `posix` or `nt`; the name is given as the file has it.
        raise PickleRefusedError(
            f"it refers to {full_name!r}, and only tensors and plain data are allowed"
        )
    return _Global(full_name)


def _is_count(value: object, limit: int = _MAX_COUNT) -> bool:
    return isinstance(value, int) and 0 <= value < limit


def _storage(persistent_id: object) -> PickledStorage:
    match persistent_id:
        case ("storage", _Global(name=name), str(key), str(), int(numel)) if _is_count(numel):
            kind = name.rpartition(".")[2]
            if kind in _STORAGES or kind in ("UntypedStorage", "TypedStorage"):
                return PickledStorage(key, _STORAGES.get(kind, ""), numel)
    raise PickleRefusedError("it has a persistent id that is no storage")


def _ordered_dict(arguments: tuple[object, ...]) -> object:
    if arguments:
        raise PickleRefusedError("it calls collections.OrderedDict with arguments")
    return OrderedDict()


def _size(arguments: tuple[object, ...]) -> object:
    if len(arguments) != 1 or shape_problem(arguments[0]):
        raise PickleRefusedError("it calls torch.Size with wrong arguments")
    return tuple(cast("list[int]", arguments[0]))


def _parameter(arguments: tuple[object, ...]) -> object:
    match arguments:
        case (PickledTensor() as tensor, bool(), dict() as hooks) if not hooks:
            return tensor
    raise PickleRefusedError("it calls torch._utils._rebuild_parameter with wrong arguments")


def _tensor(arguments: tuple[object, ...]) -> object:
    wrong = "it calls torch._utils._rebuild_tensor_v2 with wrong arguments"
    match arguments:
        case (
            PickledStorage() as storage,
            int(offset),
            tuple() as shape,
            tuple() as strides,
            bool(),
            dict() as hooks,
            *metadata,
        ) if not hooks and len(metadata) < 2:
            if problem := shape_problem(shape):
                raise PickleRefusedError(f"{wrong} ({problem})")
            if len(shape) != len(strides) or not all(_is_count(n) for n in (offset, *strides)):
                raise PickleRefusedError(f"{wrong} (offset or strides)")
            if any(metadata):
                raise PickleRefusedError(f"{wrong} (conjugated or negated data)")
            return PickledTensor(storage, offset, shape, strides)
    raise PickleRefusedError(wrong)


_CALLS: Final[Mapping[str, Callable[[tuple[object, ...]], object]]] = MappingProxyType(
    {
        "collections.OrderedDict": _ordered_dict,
        "torch.Size": _size,
        "torch._utils._rebuild_parameter": _parameter,
        "torch._utils._rebuild_tensor_v2": _tensor,
    }
)
_LITERALS: Final = frozenset(
    {
        "BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT",
        "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8",
        "SHORT_BINBYTES", "BINBYTES", "BINBYTES8",
    }
)  # fmt: skip
_FIXED: Final[Mapping[str, Callable[[], object]]] = MappingProxyType(
    {
        "NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False,
        "EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "MARK": _Mark,
    }
)  # fmt: skip
_STEPS: Final[Mapping[str, Callable[[_Machine, Any], None]]] = MappingProxyType(
    {
        "PROTO": _Machine.ignore, "FRAME": _Machine.ignore,
        "GLOBAL": _Machine.global_, "STACK_GLOBAL": _Machine.stack_global,
        "BINPUT": _Machine.put, "LONG_BINPUT": _Machine.put, "MEMOIZE": _Machine.memoize,
        "BINGET": _Machine.get, "LONG_BINGET": _Machine.get,
        "TUPLE": _Machine.tuple_of_marked, "TUPLE1": _Machine.tuple1,
        "TUPLE2": _Machine.tuple2, "TUPLE3": _Machine.tuple3,
        "APPEND": _Machine.append, "APPENDS": _Machine.appends,
        "SETITEM": _Machine.set_item, "SETITEMS": _Machine.set_items,
        "BINPERSID": _Machine.persistent_id, "REDUCE": _Machine.reduce, "BUILD": _Machine.build,
    }
)  # fmt: skip
