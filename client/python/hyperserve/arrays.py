"""Converts between arrays and the tensors of the wire. Copies. Pure; any thread."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from hyperserve.errors import InternalError
from hyperserve.v1 import hyperserve_pb2 as v1

Array = npt.NDArray[Any]

_NUMPY: dict[int, np.dtype[Any]] = {
    v1.DTYPE_F32: np.dtype("<f4"),
    v1.DTYPE_F64: np.dtype("<f8"),
    v1.DTYPE_F16: np.dtype("<f2"),
    v1.DTYPE_U8: np.dtype("u1"),
    v1.DTYPE_I64: np.dtype("<i8"),
}


def as_numpy(values: Any) -> Array:
    """A numpy array of numbers from anything that numpy takes, or from a torch tensor on any device."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        if values.dtype == torch.bfloat16:
            values = values.float()
        values = values.numpy()
    array = np.asarray(values)
    if array.dtype.kind not in "fiu":
        raise TypeError(f"an array of {array.dtype} is not sent; numbers are wanted")
    return array


def to_wire(values: Any, double: bool) -> v1.Tensor:
    """uint8 is sent as it is; any other number as F32, or as F64 if `double`, which a plan in tier double takes."""
    array = as_numpy(values)
    if array.dtype == np.uint8:
        wanted = v1.DTYPE_U8
    else:
        wanted = v1.DTYPE_F64 if double else v1.DTYPE_F32
    return v1.Tensor(dtype=wanted, shape=array.shape, data=array.astype(_NUMPY[wanted]).tobytes())


def from_wire(tensor: v1.Tensor) -> Array:
    """An array of its own, in the machine's byte order."""
    dtype, shape = _NUMPY.get(tensor.dtype), tuple(tensor.shape)
    if dtype is None or min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(tensor.data):
        raise InternalError(f"the reply has a tensor of dtype {tensor.dtype}, shape {shape}, {len(tensor.data)} bytes")
    native: np.dtype[Any] = dtype.newbyteorder("=")
    return np.frombuffer(tensor.data, dtype).reshape(shape).astype(native)


def present(message: Any, field: str) -> Array | None:
    """The array of an optional field; None where the reply does not have it."""
    return from_wire(getattr(message, field)) if message.HasField(field) else None
