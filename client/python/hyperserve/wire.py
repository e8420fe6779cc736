"""What both transports share: the calls of the wire, channel options, deadlines, failures of gRPC."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

import grpc
from google.protobuf.message import Message

from hyperserve.errors import InternalError
from hyperserve.retry import PUSHBACK_KEY, Failure, parse_pushback
from hyperserve.v1 import admin_pb2 as admin_v1
from hyperserve.v1 import hyperserve_pb2 as v1

RECEIVE_BYTES_MAX = 64 << 20

Request = TypeVar("Request", bound=Message)
Reply = TypeVar("Reply", bound=Message)


@dataclasses.dataclass(frozen=True)
class Method(Generic[Request, Reply]):
    path: str
    request: type[Request]
    reply: type[Reply]

    @staticmethod
    def serialize(request: Message) -> bytes:
        return request.SerializeToString()

    def parse(self, data: bytes) -> Reply:
        return self.reply.FromString(data)


def _call(name: str, request: type[Request], reply: type[Reply], service: str = "Hyperserve") -> Method[Request, Reply]:
    return Method(f"/hyperserve.v1.{service}/{name}", request, reply)


CLASSIFY = _call("Classify", v1.ClassifyRequest, v1.ClassifyReply)
SAMPLE = _call("Sample", v1.SampleRequest, v1.SampleReply)
SAMPLE_STREAM = _call("SampleStream", v1.SampleStreamRequest, v1.SampleChunk)
LOG_PROB = _call("LogProb", v1.LogProbRequest, v1.LogProbReply)
SOLVE = _call("Solve", v1.SolveRequest, v1.SolveReply)
LIST_MODELS = _call("ListModels", v1.ListModelsRequest, v1.ListModelsReply)
GET_MODEL = _call("GetModel", v1.GetModelRequest, v1.GetModelReply)
GET_SERVER_INFO = _call("GetServerInfo", v1.GetServerInfoRequest, v1.GetServerInfoReply)
PUBLISH = _call("PublishHypersolver", admin_v1.PublishHypersolverRequest, admin_v1.PublishHypersolverReply, "Admin")
LOAD = _call("LoadModel", admin_v1.LoadModelRequest, admin_v1.LoadModelReply, "Admin")
UNLOAD = _call("UnloadModel", admin_v1.UnloadModelRequest, admin_v1.UnloadModelReply, "Admin")
ROLLBACK = _call("RollbackHypersolver", admin_v1.RollbackHypersolverRequest, admin_v1.RollbackHypersolverReply, "Admin")


def channel_options(receive_bytes_max: int) -> list[tuple[str, Any]]:
    """As the C++ client sets them (client/connection.cc)."""
    return [
        ("grpc.max_receive_message_length", receive_bytes_max),
        ("grpc.initial_reconnect_backoff_ms", 50),
        ("grpc.max_reconnect_backoff_ms", 1000),
        # An HTTP proxy does not lead to a daemon, least of all to one on loopback.
        ("grpc.enable_http_proxy", 0),
        ("grpc.use_local_subchannel_pool", 1),
    ]


class Deadline:
    """The time at which a call must have ended, retries and waiting included."""

    def __init__(self, timeout: float) -> None:
        if not (timeout > 0 and math.isfinite(timeout)):
            raise ValueError(f"a timeout of {timeout} s; a positive finite number is wanted")
        self._end = time.monotonic() + timeout

    def left(self) -> float:
        """Seconds; negative after the deadline."""
        return self._end - time.monotonic()


TOO_LATE = Failure(grpc.StatusCode.DEADLINE_EXCEEDED, "the deadline passed before it was sent")


def no_connection(address: str) -> Failure:
    return Failure(grpc.StatusCode.UNAVAILABLE, f"no connection to {address}", repeatable=True)


def failure_of(
    address: str,
    code: grpc.StatusCode,
    details: str,
    trailers: Iterable[Any],
    repeatable: bool = False,
    progressed: bool = False,
) -> Failure:
    """An attempt that gRPC reports as failed."""
    if code == grpc.StatusCode.CANCELLED:  # not by us
        code, details = grpc.StatusCode.UNAVAILABLE, f"{address} closed while the call was under way"
    pushback = next((parse_pushback(value) for key, value in trailers if key == PUSHBACK_KEY), None)
    return Failure(code, details, repeatable, progressed, pushback)


class StreamLeft:
    """The rows of a stream that have not arrived; the request of the next attempt asks for these."""

    def __init__(self, sample: v1.SampleRequest, chunk_rows: int) -> None:
        self.request = v1.SampleStreamRequest(sample=sample, chunk_rows=chunk_rows)
        self.request_id = sample.options.request_id
        self.rows = sample.rows
        self.summary: v1.SolveInfo | None = None

    @property
    def done(self) -> int:
        return self.rows - self.request.sample.rows

    @property
    def resumable(self) -> bool:
        return self.request.sample.rows > 0

    def take(self, chunk: v1.SampleChunk) -> None:
        """Raises where the chunk is not the next one."""
        left = self.request.sample
        if chunk.first_row != left.first_row or not 0 <= chunk.rows <= left.rows:
            words = f"the stream sent rows from {chunk.first_row} where {left.first_row} was next"
            raise InternalError(words, self.request_id)
        left.first_row += chunk.rows
        left.rows -= chunk.rows
        left.options.generation = chunk.generation
        if chunk.HasField("summary"):
            self.summary = chunk.summary

    def end(self) -> v1.SolveInfo:
        """The summary, after a resumption that of the last part. Raises where rows or the summary are missing."""
        if self.resumable or self.summary is None:
            raise InternalError(f"the stream ended {self.request.sample.rows} rows early", self.request_id)
        return self.summary
