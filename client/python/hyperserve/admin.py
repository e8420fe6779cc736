"""The calls that change a running daemon, on its Admin address. Never repeated: the first attempt may have published.

Each call opens a connection of its own and closes it.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import pathlib

from hyperserve import wire
from hyperserve.connection import Connection
from hyperserve.retry import NEVER_AGAIN
from hyperserve.v1 import admin_pb2 as v1

ADDRESS = "127.0.0.1:8501"
TIMEOUT = 120.0  # the gate solves against a reference


@dataclasses.dataclass(frozen=True)
class GateResult:
    """What the gate measured at one K: relative errors of the end state."""

    steps: int
    candidate_error: float
    active_error: float | None  # None: no active generation serves this K
    base_error: float  # of the classical method


@dataclasses.dataclass(frozen=True)
class Published:
    generation: int  # is served now
    previous_generation: int  # 0: none
    gate: tuple[GateResult, ...]
    seconds: float


@dataclasses.dataclass(frozen=True)
class RolledBack:
    generation: int  # is served now
    previous_generation: int


def publish(
    folder: str | os.PathLike[str],
    *,
    model: str,
    method: str | None = None,
    parent_generation: int | None = None,
    allow_narrower: bool = False,
    address: str = ADDRESS,
    timeout: float = TIMEOUT,
) -> Published:
    """Sends the files of a generation through the gate; when it returns, the correction is served.

    `method` is read from hypersolver.json if it is not given. With `parent_generation` (0: none), AbortedError where
    another generation is active. `allow_narrower` lets it serve fewer K or a narrower range of eps than the active one. FailedPreconditionError says why the gate refused the correction.
    """
    files = sorted(path for path in pathlib.Path(folder).iterdir() if path.is_file())
    request = v1.PublishHypersolverRequest(
        model=model,
        method=method or _method_of(pathlib.Path(folder)),
        files=[v1.NamedFile(name=path.name, content=path.read_bytes()) for path in files],
        parent_generation=parent_generation,
        allow_narrower=allow_narrower,
    )
    reply = _call(wire.PUBLISH, request, address, timeout)
    gate = tuple(
        GateResult(
            steps=one.steps,
            candidate_error=one.candidate_error,
            active_error=None if math.isnan(one.active_error) else one.active_error,
            base_error=one.base_error,
        )
        for one in reply.gate
    )
    return Published(reply.generation, reply.previous_generation, gate, reply.seconds)


def rollback(
    model: str, method: str, *, generation: int = 0, address: str = ADDRESS, timeout: float = TIMEOUT
) -> RolledBack:
    """Serves the previous generation again, or the named one that passed."""
    request = v1.RollbackHypersolverRequest(model=model, method=method, generation=generation)
    reply = _call(wire.ROLLBACK, request, address, timeout)
    return RolledBack(reply.generation, reply.previous_generation)


def load_model(model: str, *, address: str = ADDRESS, timeout: float = TIMEOUT) -> str:
    """Loads a new or changed model of the daemon's repository; returns its base digest."""
    return _call(wire.LOAD, v1.LoadModelRequest(model=model), address, timeout).base_digest


def unload_model(model: str, *, address: str = ADDRESS, timeout: float = TIMEOUT) -> None:
    """Takes a model out of the daemon until load_model or a restart."""
    _call(wire.UNLOAD, v1.UnloadModelRequest(model=model), address, timeout)


def _method_of(folder: pathlib.Path) -> str:
    file = folder / "hypersolver.json"
    method = json.loads(file.read_text("utf-8")).get("method")
    if not isinstance(method, str) or not method:
        raise ValueError(f"{file} names no method; give method=")
    return method


def _call(
    method: wire.Method[wire.Request, wire.Reply], request: wire.Request, address: str, timeout: float
) -> wire.Reply:
    connection = Connection(address, wire.RECEIVE_BYTES_MAX)
    try:
        return connection.unary(NEVER_AGAIN, method, request, wire.Deadline(timeout))
    finally:
        connection.close()
