"""Reads and writes files of tensors: safetensors, and what torch.save writes (zip and the older format). No code of a file runs.

Tensors are numpy arrays in the machine's byte order; bfloat16 becomes float32. Anything else than tensors in mappings is refused.
"""

from __future__ import annotations

import collections
import dataclasses
import io
import json
import math
import os
import pathlib
import pickle
import struct
import zipfile
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

import numpy as np

from hyperserve.arrays import Array

HEADER_BYTES_MAX = 100 << 20
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_LEGACY_PROTOCOL = 1001

_BFLOAT16 = "bfloat16"
_SAFETENSORS = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": _BFLOAT16, "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
    "U8": "u1", "BOOL": "?",
}  # fmt: skip
_STORAGES = {
    "DoubleStorage": "<f8", "FloatStorage": "<f4", "HalfStorage": "<f2", "BFloat16Storage": _BFLOAT16,
    "LongStorage": "<i8", "IntStorage": "<i4", "ShortStorage": "<i2", "CharStorage": "i1", "ByteStorage": "u1",
    "BoolStorage": "?",
}  # fmt: skip


class TensorFileError(ValueError):
    """A file that does not hold what it should. The message says what."""


def _decode(data: bytes, dtype: str) -> Array:
    if dtype == _BFLOAT16:
        return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4").astype(np.float32)
    numbers = np.frombuffer(data, dtype)
    native: np.dtype[Any] = numbers.dtype.newbyteorder("=")
    return numbers.astype(native)


def _item_size(dtype: str) -> int:
    return 2 if dtype == _BFLOAT16 else np.dtype(dtype).itemsize


def read_tensors(path: str | os.PathLike[str]) -> dict[str, Array]:
    """The tensors of a file by name. The names of nested mappings are joined by dots."""
    content = pathlib.Path(path).read_bytes()
    file = io.BytesIO(content)
    try:
        if content[:4] == b"PK\x03\x04":
            return _read_zip(file)
        if content[:1] == b"\x80":
            return _read_legacy(file)
        return _read_safetensors(file)
    except TensorFileError as error:
        raise TensorFileError(f"{os.fspath(path)}: {error}") from None
    except Exception as error:  # the readers of pickles and archives raise almost anything on damaged content
        raise TensorFileError(f"{os.fspath(path)}: not a whole file of tensors: {type(error).__name__}: {error}") from None


def write_safetensors(path: str | os.PathLike[str], tensors: Mapping[str, Array]) -> None:
    header: dict[str, Any] = {}
    parts: list[bytes] = []
    size = 0
    for name, tensor in tensors.items():
        kind = {"f8": "F64", "f4": "F32", "f2": "F16", "u1": "U8"}[tensor.dtype.str[1:]]
        data = tensor.astype(_SAFETENSORS[kind]).tobytes()
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [size, size + len(data)]}
        parts.append(data)
        size += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # the data begins aligned
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(parts))


def _read_safetensors(file: BinaryIO) -> dict[str, Array]:
    (length,) = struct.unpack("<Q", file.read(8))
    if length > HEADER_BYTES_MAX:
        raise TensorFileError("neither safetensors nor a file of torch.save")
    header, data, tensors = json.loads(file.read(length)), file.read(), {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        dtype, shape = _SAFETENSORS.get(entry["dtype"]), tuple(entry["shape"])
        if dtype is None:
            raise TensorFileError(f"{name}: dtype {entry['dtype']} is not known")
        begin, end = entry["data_offsets"]
        if not 0 <= begin <= end <= len(data) or end - begin != math.prod(shape) * _item_size(dtype):
            raise TensorFileError(f"{name}: its bytes {begin} to {end} do not fit shape {shape} and the file")
        tensors[name] = _decode(data[begin:end], dtype).reshape(shape)
    return tensors


@dataclasses.dataclass(frozen=True)
class _Storage:
    key: str
    dtype: str
    numel: int


@dataclasses.dataclass(frozen=True)
class _Tensor:
    """A view of a storage, whose numbers are read later."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    def read(self, numbers: Array) -> Array:
        shape, stride = self.shape, self.stride
        if min((*shape, *stride, self.offset), default=0) < 0 or len(shape) != len(stride):
            raise TensorFileError(f"a tensor of shape {shape} and stride {stride}")
        last = self.offset + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
        if math.prod(shape) == 0:
            return np.zeros(shape, numbers.dtype)
        if last >= len(numbers):
            raise TensorFileError(f"a tensor of shape {shape} reaches beyond its storage of {len(numbers)} numbers")
        strides = [step * numbers.itemsize for step in stride]
        return np.lib.stride_tricks.as_strided(numbers[self.offset :], shape, strides).copy()


class _TensorsOnly(pickle.Unpickler):
    """Knows the names that tensors need, and stands for each with a function or value of its own: nothing is imported."""

    def find_class(self, module: str, name: str) -> Any:
        def rebuild_tensor(storage: _Storage, offset: int, shape: Any, stride: Any, *rest: Any) -> _Tensor:
            if not isinstance(storage, _Storage):
                raise TensorFileError("a tensor without a storage")
            return _Tensor(storage, int(offset), tuple(map(int, shape)), tuple(map(int, stride)))

        def rebuild_parameter(data: _Tensor, *rest: Any) -> _Tensor:
            return data

        known: dict[tuple[str, str], Any] = {
            ("collections", "OrderedDict"): collections.OrderedDict,
            ("torch._utils", "_rebuild_tensor"): rebuild_tensor,
            ("torch._utils", "_rebuild_tensor_v2"): rebuild_tensor,
            ("torch._utils", "_rebuild_parameter"): rebuild_parameter,
        }
        if module in ("torch", "torch.cuda") and name in _STORAGES:
            return _STORAGES[name]
        if (module, name) not in known:
            raise TensorFileError(
                f"it names {module}.{name}, and only tensors are read; save the module's state_dict() instead"
            )
        return known[module, name]

    def persistent_load(self, pid: Any) -> _Storage:
        if not isinstance(pid, tuple) or len(pid) < 5 or pid[0] != "storage" or not isinstance(pid[1], str):
            raise TensorFileError(f"a reference {pid!r:.80} that is no storage")
        if len(pid) > 5 and pid[5] is not None:
            raise TensorFileError("a view of a storage, as torch before 0.4 wrote it")
        return _Storage(key=str(pid[2]), dtype=pid[1], numel=int(pid[4]))


def _read_zip(file: BinaryIO) -> dict[str, Array]:
    with zipfile.ZipFile(file) as archive:
        pickles = [name for name in archive.namelist() if name == "data.pkl" or name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise TensorFileError("an archive without one data.pkl: not of torch.save")
        root = pickles[0].removesuffix("data.pkl")
        if root + "byteorder" in archive.namelist() and archive.read(root + "byteorder").strip() != b"little":
            raise TensorFileError("its numbers are big-endian")
        found = _named(_TensorsOnly(io.BytesIO(archive.read(pickles[0]))).load())

        def read(storage: _Storage) -> bytes:
            return archive.read(f"{root}data/{storage.key}")

        return _fill(found, read)


def _read_legacy(file: BinaryIO) -> dict[str, Array]:
    if _TensorsOnly(file).load() != _LEGACY_MAGIC or _TensorsOnly(file).load() != _LEGACY_PROTOCOL:
        raise TensorFileError("a pickle that torch.save did not write")
    if not _TensorsOnly(file).load()["little_endian"]:
        raise TensorFileError("its numbers are big-endian")
    found = _named(_TensorsOnly(file).load())
    sizes = {tensor.storage.key: tensor.storage for tensor in found.values()}
    contents: dict[str, bytes] = {}
    for key in _TensorsOnly(file).load():
        if key not in sizes:
            raise TensorFileError("a storage that no tensor of a mapping uses")
        (numel,) = struct.unpack("<q", file.read(8))
        if numel != sizes[key].numel:
            raise TensorFileError(f"a storage of {numel} numbers, {sizes[key].numel} wanted")
        contents[key] = file.read(numel * _item_size(sizes[key].dtype))
    return _fill(found, lambda storage: contents[storage.key])


def _fill(found: Mapping[str, _Tensor], read: Callable[[_Storage], bytes]) -> dict[str, Array]:
    storages: dict[str, Array] = {}
    for tensor in found.values():
        storage = tensor.storage
        if storage.key not in storages:
            data = read(storage)
            if len(data) != storage.numel * _item_size(storage.dtype):
                raise TensorFileError(f"a storage of {len(data)} bytes does not hold {storage.numel} numbers")
            storages[storage.key] = _decode(data, storage.dtype)
    return {name: tensor.read(storages[tensor.storage.key]) for name, tensor in found.items()}


def _named(value: Any, prefix: str = "") -> dict[str, _Tensor]:
    """The tensors of nested mappings; numbers and texts beside them are passed over."""
    if not isinstance(value, dict):
        raise TensorFileError(f"{prefix or 'the file'}: {type(value).__name__} found, a mapping of tensors wanted")
    found: dict[str, _Tensor] = {}
    for key, one in value.items():
        name = f"{prefix}.{key}" if prefix else str(key)
        if isinstance(one, _Tensor):
            found[name] = one
        elif isinstance(one, dict):
            found.update(_named(one, name))
    return found
