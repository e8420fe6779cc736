"""Reads the pickles that torch.save writes: a machine of the few instructions that mappings of tensors take.

It knows the names that tensors need and stands for each with a value or function of its own, so no code of a file runs. It
makes nothing that is larger than its instructions: Python's own reader reserves memory as a file tells it, and hashes keys
of any depth.
"""

from __future__ import annotations

import dataclasses
import pickletools
from collections.abc import Callable
from typing import Any, BinaryIO

BFLOAT16 = "bfloat16"
_STORAGES = {
    "DoubleStorage": "<f8", "FloatStorage": "<f4", "HalfStorage": "<f2", "BFloat16Storage": BFLOAT16,
    "LongStorage": "<i8", "IntStorage": "<i4", "ShortStorage": "<i2", "CharStorage": "i1", "ByteStorage": "u1",
    "BoolStorage": "?",
}  # fmt: skip


class TensorFileError(ValueError):
    """A file that does not hold what it should. The message says what."""


@dataclasses.dataclass(frozen=True)
class StorageType:
    dtype: str  # of numpy, or BFLOAT16


@dataclasses.dataclass(frozen=True)
class Storage:
    key: str
    dtype: str
    numel: int


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A view of a storage, whose numbers are read later. Offset and strides count numbers."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Settings:
    """Stands for what programs save beside tensors, of which nothing is kept."""


class _Mark:
    pass


_MARK = _Mark()
_VALUES: dict[str, Callable[[], Any]] = {
    "EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "NONE": lambda: None, "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False, "MARK": lambda: _MARK,
}  # fmt: skip
_ARGUMENTS = ("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "BINSTRING",
              "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES")  # fmt: skip


class PickleReader:
    """Of one pickle. `storages` holds those that it named, by key."""

    def __init__(self, storages: dict[str, Storage]) -> None:
        self._storages = storages
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def load(self, file: BinaryIO) -> Any:
        """The value; the file stands behind it. TensorFileError where it is more than tensors."""
        for opcode, argument, _ in pickletools.genops(file):
            if opcode.name == "STOP":
                return self._pop()
            self._step(opcode.name, argument)
        raise TensorFileError("a pickle without an end")

    def _step(self, name: str, argument: Any) -> None:
        push = self._stack.append
        if name in ("PROTO", "FRAME"):
            return
        if name in _ARGUMENTS:
            push(argument)
        elif name in _VALUES:
            push(_VALUES[name]())
        elif name in ("BINPUT", "LONG_BINPUT", "MEMOIZE"):
            self._memo[len(self._memo) if argument is None else argument] = self._top()
        elif name in ("BINGET", "LONG_BINGET"):
            if argument not in self._memo:
                raise TensorFileError(f"a pickle that takes number {argument} of its memo, which is not there")
            push(self._memo[argument])
        elif name in ("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"):
            push(tuple(self._since_mark() if name == "TUPLE" else reversed([self._pop() for _ in range(int(name[5:]))])))
        elif name in ("APPEND", "APPENDS"):
            values = self._since_mark() if name == "APPENDS" else [self._pop()]
            self._expect(list).extend(values)
        elif name in ("SETITEM", "SETITEMS"):
            pairs = self._since_mark() if name == "SETITEMS" else list(reversed([self._pop(), self._pop()]))
            self._fill(self._expect(dict), pairs)
        elif name == "GLOBAL":
            push(_known(*argument.split(" ", 1)))
        elif name == "STACK_GLOBAL":
            last, module = self._pop(), self._pop()
            push(_known(str_of(module), str_of(last)))
        elif name in ("REDUCE", "NEWOBJ"):
            arguments, callee = self._pop(), self._pop()
            if not isinstance(arguments, tuple) or not any(callee is one for one in _CALLS.values()):
                raise TensorFileError(f"a pickle that calls a {type(callee).__name__}")
            push(callee(*arguments))
        elif name == "BUILD":  # attributes: of a mapping the versions of its modules
            self._pop()
            self._expect(Settings if isinstance(self._top(), Settings) else dict)
        elif name == "BINPERSID":
            push(self._storage(self._pop()))
        else:
            raise TensorFileError(f"a pickle with the instruction {name}, which mappings of tensors do not take")

    def _top(self) -> Any:
        if not self._stack or self._stack[-1] is _MARK:
            raise TensorFileError("a pickle that takes a value which is not there")
        return self._stack[-1]

    def _pop(self) -> Any:
        self._top()
        return self._stack.pop()

    def _expect(self, kind: type[Any]) -> Any:
        found = self._top()
        if type(found) is not kind:
            raise TensorFileError(f"a pickle that puts items into a {type(found).__name__}")
        return found

    def _since_mark(self) -> list[Any]:
        values: list[Any] = []
        while self._stack:
            value = self._stack.pop()
            if value is _MARK:
                return values[::-1]
            values.append(value)
        raise TensorFileError("a pickle that takes values since a mark which is not there")

    @staticmethod
    def _fill(target: dict[Any, Any], pairs: list[Any]) -> None:
        if len(pairs) % 2:
            raise TensorFileError("a pickle with a key without a value")
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            if not isinstance(key, (str, int, float, bytes)):
                raise TensorFileError(f"a mapping with a {type(key).__name__} as a key")
            target[key] = value

    def _storage(self, name: Any) -> Storage:
        """Of ("storage", type, key, location, numbers), and in the older format None for "not a view"."""
        if not isinstance(name, tuple) or len(name) not in (5, 6) or name[0] != "storage":
            raise TensorFileError("a reference that is no storage")
        if len(name) > 5 and name[5] is not None:
            raise TensorFileError("a view of a storage, as torch before 0.4 wrote it")
        if not isinstance(name[1], StorageType):
            raise TensorFileError("a storage whose type is not one of torch's")
        storage = Storage(str_of(name[2]), name[1].dtype, _count(name[4]))
        if self._storages.setdefault(storage.key, storage) != storage:
            raise TensorFileError(f"two storages called {storage.key}")
        return storage


def str_of(value: Any) -> str:
    if not isinstance(value, str):
        raise TensorFileError(f"a {type(value).__name__} where a text is wanted")
    return value


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise TensorFileError("a count that is no number from 0 to 2^62")
    return value


def _counts(values: Any) -> tuple[int, ...]:
    if not isinstance(values, tuple) or len(values) > 32:
        raise TensorFileError("a shape or stride that is no tuple of at most 32 numbers")
    return tuple(map(_count, values))


def _rebuild_tensor(storage: Any, offset: Any, shape: Any, stride: Any, *rest: Any) -> Tensor:
    if not isinstance(storage, Storage):
        raise TensorFileError("a tensor without a storage")
    return Tensor(storage, _count(offset), _counts(shape), _counts(stride))


def _rebuild_parameter(data: Any, *rest: Any) -> Tensor:
    if not isinstance(data, Tensor):
        raise TensorFileError("a parameter without a tensor")
    return data


def _ordered_dict(*items: Any) -> dict[Any, Any]:
    if items:
        raise TensorFileError("a mapping made of a list, as Python 2 wrote it")
    return {}


def _default_dict(*factory: Any) -> dict[Any, Any]:
    return {}


# What training loops save beside the tensors: figures of numpy, paths, counts.
_BESIDE = (
    ("numpy.core.multiarray", "scalar"), ("numpy._core.multiarray", "scalar"), ("numpy", "dtype"), ("numpy", "ndarray"),
    ("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct"), ("_codecs", "encode"),
    ("pathlib", "PosixPath"), ("pathlib", "PurePosixPath"), ("pathlib._local", "PosixPath"), ("collections", "Counter"),
    ("builtins", "dict"), ("builtins", "list"), ("builtins", "int"), ("__builtin__", "dict"), ("__builtin__", "list"),
    ("builtins", "set"), ("__builtin__", "set"), ("torch.torch_version", "TorchVersion"),
)  # fmt: skip


def _settings(*values: Any) -> Settings:
    return Settings()


_CALLS: dict[tuple[str, str], Callable[..., Any]] = {
    ("collections", "OrderedDict"): _ordered_dict,
    ("torch._utils", "_rebuild_tensor"): _rebuild_tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
    ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
    ("argparse", "Namespace"): _settings,
    ("torch", "device"): _settings,
    ("torch", "Size"): _settings,
    ("collections", "defaultdict"): _default_dict,
    **{name: _settings for name in _BESIDE},
}


def _known(module: str, name: str) -> Any:
    if module in ("torch", "torch.cuda") and name in _STORAGES:
        return StorageType(_STORAGES[name])
    if (module, name) not in _CALLS:
        raise TensorFileError(f"it names {module}.{name}, and only tensors are read; save the module's state_dict() instead")
    return _CALLS[module, name]
