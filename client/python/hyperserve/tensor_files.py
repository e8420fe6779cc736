"""Reads and writes files of tensors: safetensors, and what torch.save writes (zip and the older format). No code of a file runs.

Tensors are numpy arrays in the machine's byte order; bfloat16 becomes float32. Anything else than tensors in mappings is
refused, and so is a file whose tensors or names take more than a few times its own size.
"""

from __future__ import annotations

import io
import json
import math
import os
import pathlib
import struct
import zipfile
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

import numpy as np

from hyperserve.arrays import Array
from hyperserve.pickles import BFLOAT16, PickleReader, Storage, Tensor, TensorFileError

HEADER_BYTES_MAX = 100 << 20
UNFOLDED_MAX = 8  # times the file's size: torchdyn stores a net twice, on the same numbers
NESTING_MAX = 32
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_LEGACY_PROTOCOL = 1001

_SAFETENSORS = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": BFLOAT16, "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
    "U8": "u1", "BOOL": "?",
}  # fmt: skip


def _decode(data: bytes, dtype: str) -> Array:
    if dtype == BFLOAT16:
        return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4").astype(np.float32)
    numbers = np.frombuffer(data, dtype)
    native: np.dtype[Any] = numbers.dtype.newbyteorder("=")
    return numbers.astype(native)


def _item_size(dtype: str) -> int:
    return 2 if dtype == BFLOAT16 else np.dtype(dtype).itemsize


def read_tensors(path: str | os.PathLike[str]) -> dict[str, Array]:
    """The tensors of a file by name, not to be written to. The names of nested mappings are joined by dots.

    TensorFileError names the file and what is wrong with it; OSError where it cannot be read.
    """
    content = pathlib.Path(path).read_bytes()
    file, size = io.BytesIO(content), len(content)
    try:
        if content[:4] == b"PK\x03\x04":
            return _read_zip(file, size)
        # The length of a safetensors header may begin with a pickle's first byte; its header begins behind it with a brace.
        if content[:1] == b"\x80" and content[8:9] != b"{":
            return _read_legacy(file, size)
        return _read_safetensors(file, size)
    except TensorFileError as error:
        raise TensorFileError(f"{os.fspath(path)}: {error}") from None
    except Exception as error:  # the readers of JSON, opcodes and archives raise almost anything on damaged content
        raise TensorFileError(f"{os.fspath(path)}: not a whole file of tensors: {type(error).__name__}: {error}") from None


def write_safetensors(path: str | os.PathLike[str], tensors: Mapping[str, Array]) -> None:
    """Tensors of float64, float32, float16 or uint8; TensorFileError names another one."""
    header: dict[str, Any] = {}
    parts: list[bytes] = []
    size = 0
    for name, tensor in tensors.items():
        kind = {"f8": "F64", "f4": "F32", "f2": "F16", "u1": "U8"}.get(tensor.dtype.str[1:])
        if kind is None:
            raise TensorFileError(f"{name}: numbers of {tensor.dtype} are not written; floats or uint8 are")
        data = tensor.astype(_SAFETENSORS[kind]).tobytes()
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [size, size + len(data)]}
        parts.append(data)
        size += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # the data begins aligned
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(parts))


def _read_safetensors(file: BinaryIO, size: int) -> dict[str, Array]:
    (length,) = struct.unpack("<Q", file.read(8))
    if length > min(HEADER_BYTES_MAX, size):
        raise TensorFileError("neither safetensors nor a file of torch.save")
    header, data, tensors = json.loads(file.read(length)), file.read(), {}
    if not isinstance(header, dict):
        raise TensorFileError("a header that is no mapping")
    left = UNFOLDED_MAX * size
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        dtype, shape, (begin, end) = _entry(name, entry)
        if not 0 <= begin <= end <= len(data) or end - begin != math.prod(shape) * _item_size(dtype):
            raise TensorFileError(f"{name}: its bytes {begin} to {end} do not fit shape {shape} and the file")
        left = _spend(left, end - begin)
        tensors[name] = _decode(data[begin:end], dtype).reshape(shape)
    return tensors


def _entry(name: str, entry: Any) -> tuple[str, tuple[int, ...], tuple[int, int]]:
    """dtype, shape and bytes of a tensor in the header of safetensors."""

    def counts(field: str, most: int) -> tuple[int, ...]:
        values = entry.get(field)
        if not isinstance(values, list) or len(values) > most or not all(type(one) is int and one >= 0 for one in values):
            raise TensorFileError(f"{name}: {field} is no list of at most {most} counts")
        return tuple(values)

    if not isinstance(entry, dict) or not isinstance(entry.get("dtype"), str):
        raise TensorFileError(f"{name}: an entry without a dtype")
    if entry["dtype"] not in _SAFETENSORS:
        raise TensorFileError(f"{name}: dtype {entry['dtype']:.20} is not known; there are {', '.join(_SAFETENSORS)}")
    offsets = counts("data_offsets", 2)
    if len(offsets) != 2:
        raise TensorFileError(f"{name}: data_offsets hold a begin and an end")
    return _SAFETENSORS[entry["dtype"]], counts("shape", 32), (offsets[0], offsets[1])


def _spend(left: int, size: int) -> int:
    if size > left:
        raise TensorFileError(f"its tensors and their names take more than {UNFOLDED_MAX} times the file")
    return left - size


def _read_zip(file: BinaryIO, size: int) -> dict[str, Array]:
    with zipfile.ZipFile(file) as archive:
        left = size  # entries may lie on top of each other

        def stored(name: str) -> bytes:
            nonlocal left
            entry = archive.getinfo(name)
            if entry.compress_type != zipfile.ZIP_STORED:
                raise TensorFileError(f"{name} is compressed; torch.save does not compress")
            if entry.file_size > left:
                raise TensorFileError("its entries take more than the file")
            left -= entry.file_size
            return archive.read(entry)

        names = set(archive.namelist())
        pickles = [name for name in names if name == "data.pkl" or name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise TensorFileError("an archive without one data.pkl: not of torch.save")
        root = pickles[0].removesuffix("data.pkl")
        if root + "byteorder" in names and stored(root + "byteorder").strip() != b"little":
            raise TensorFileError("its numbers are big-endian")
        found = _named(PickleReader({}).load(io.BytesIO(stored(pickles[0]))), size)

        def read(storage: Storage) -> bytes:
            name = f"{root}data/{storage.key}"
            if name not in names:
                raise TensorFileError(f"{name} is missing")
            return stored(name)

        return _fill(found, read, size)


def _read_legacy(file: BinaryIO, size: int) -> dict[str, Array]:
    storages: dict[str, Storage] = {}

    def load() -> Any:
        return PickleReader(storages).load(file)

    if load() != _LEGACY_MAGIC or load() != _LEGACY_PROTOCOL:
        raise TensorFileError("a pickle that torch.save did not write")
    system = load()
    if not isinstance(system, dict) or system.get("little_endian") is not True:
        raise TensorFileError("its numbers are big-endian")
    found = _named(load(), size)
    keys, contents = load(), {}
    if not isinstance(keys, list):
        raise TensorFileError("no list of storages")
    for key in keys:
        storage = storages.get(key) if isinstance(key, str) else None
        if storage is None:
            raise TensorFileError("a storage that no tensor uses")
        (numel,) = struct.unpack("<q", file.read(8))
        if numel != storage.numel:
            raise TensorFileError(f"a storage of {numel} numbers, {storage.numel} wanted")
        contents[storage.key] = file.read(numel * _item_size(storage.dtype))

    def read(storage: Storage) -> bytes:
        if storage.key not in contents:
            raise TensorFileError(f"storage {storage.key} is missing")
        return contents[storage.key]

    return _fill(found, read, size)


def _fill(found: Mapping[str, Tensor], read: Callable[[Storage], bytes], size: int) -> dict[str, Array]:
    storages: dict[str, Array] = {}
    left = UNFOLDED_MAX * size
    for name, tensor in found.items():
        storage = tensor.storage
        if storage.key not in storages:
            data = read(storage)
            if len(data) != storage.numel * _item_size(storage.dtype):
                raise TensorFileError(f"a storage of {len(data)} bytes does not hold {storage.numel} numbers")
            storages[storage.key] = _decode(data, storage.dtype)
        if math.prod(tensor.shape) > storage.numel:  # many times the same number
            raise TensorFileError(f"{name}: shape {tensor.shape} on a storage of {storage.numel} numbers")
        left = _spend(left, math.prod(tensor.shape) * _item_size(storage.dtype))
    return {name: _view(name, tensor, storages[tensor.storage.key]) for name, tensor in found.items()}


def _view(name: str, tensor: Tensor, numbers: Array) -> Array:
    """The numbers themselves, not a copy."""
    shape, stride = tensor.shape, tensor.stride
    if len(shape) != len(stride):
        raise TensorFileError(f"{name}: shape {shape} and stride {stride}")
    if math.prod(shape) == 0:
        return np.zeros(shape, numbers.dtype)
    last = tensor.offset + sum((count - 1) * step for count, step in zip(shape, stride, strict=True))
    if last >= len(numbers):
        raise TensorFileError(f"{name}: shape {shape} reaches beyond its storage of {len(numbers)} numbers")
    strides = [step * numbers.itemsize for step in stride]
    return np.lib.stride_tricks.as_strided(numbers[tensor.offset :], shape, strides, writeable=False)


def _named(value: Any, size: int) -> dict[str, Tensor]:
    """The tensors of nested mappings; numbers, texts and lists beside them are passed over."""
    if not isinstance(value, dict):
        raise TensorFileError(f"{type(value).__name__} found, a mapping of tensors wanted")
    found: dict[str, Tensor] = {}
    left, open_ = UNFOLDED_MAX * size, [("", value, 0)]
    while open_:
        prefix, mapping, depth = open_.pop()
        if depth > NESTING_MAX:
            raise TensorFileError(f"mappings nested more than {NESTING_MAX} deep")
        nested = []
        for key, one in mapping.items():
            name = f"{prefix}{key}"
            left = _spend(left, len(name) + 1)
            if isinstance(one, Tensor):
                found[name] = one
            elif isinstance(one, dict):
                nested.append((f"{name}.", one, depth + 1))
        open_ += reversed(nested)
    return found
