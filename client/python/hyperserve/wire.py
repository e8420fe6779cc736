"""What both transports share: the calls of the wire, channel options, deadlines, failures of gRPC."""

from __future__ import annotations

import dataclasses
import math
import re
import time
from typing import Any, Generic, TypeVar

import grpc
from google.protobuf.message import Message

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
SOLVE_VJP = _call("SolveVjp", v1.SolveVjpRequest, v1.SolveVjpReply)
SOLVE_JVP = _call("SolveJvp", v1.SolveJvpRequest, v1.SolveJvpReply)
LOG_PROB_GRADIENT = _call("LogProbGradient", v1.LogProbGradientRequest, v1.LogProbGradientReply)
LIST_MODELS = _call("ListModels", v1.ListModelsRequest, v1.ListModelsReply)
GET_MODEL = _call("GetModel", v1.GetModelRequest, v1.GetModelReply)
GET_SERVER_INFO = _call("GetServerInfo", v1.GetServerInfoRequest, v1.GetServerInfoReply)
PUBLISH = _call("PublishHypersolver", admin_v1.PublishHypersolverRequest, admin_v1.PublishHypersolverReply, "Admin")
LOAD = _call("LoadModel", admin_v1.LoadModelRequest, admin_v1.LoadModelReply, "Admin")
UNLOAD = _call("UnloadModel", admin_v1.UnloadModelRequest, admin_v1.UnloadModelReply, "Admin")
ROLLBACK = _call("RollbackHypersolver", admin_v1.RollbackHypersolverRequest, admin_v1.RollbackHypersolverReply, "Admin")


def message(kind: type[Request], **fields: Any) -> Request:
    """The message of these fields. Protobuf's own refusal of a number or a text does not say of which field."""
    try:
        return kind(**fields)
    except (TypeError, ValueError):
        for name, value in fields.items():
            try:
                kind(**{name: value})
            except (TypeError, ValueError) as error:
                refusal = TypeError if isinstance(error, TypeError) else ValueError
                raise refusal(f"{name}={value!r}: {error}") from None
        raise


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
CLOSED = Failure(grpc.StatusCode.UNAVAILABLE, "the client is closed")
ELSEWHERE = Failure(
    grpc.StatusCode.FAILED_PRECONDITION,
    "this AsyncClient is in use by another event loop, which has not ended; make one client for each loop",
)


def checked(address: str) -> str:
    if not isinstance(address, str):
        raise TypeError(f"address={address!r}; HOST:PORT is wanted, as in '127.0.0.1:8500'")
    return address


def no_connection(address: str) -> Failure:
    words = f"no connection to {address}"
    if "://" in address or not re.search(r"^unix|:[0-9]+$", address):
        words += "; an address is HOST:PORT, as in 127.0.0.1:8500"
    else:
        words += "; check that a daemon runs there: it listens soon after its start, and calls wait while it loads"
    return Failure(grpc.StatusCode.UNAVAILABLE, words, repeatable=True)


def failure_of(address: str, error: Exception, repeatable: bool = False, progressed: bool = False) -> Failure:
    """An attempt that gRPC reports as failed: by an RpcError, or on a closed channel by ValueError or, in asyncio, UsageError."""
    if not isinstance(error, grpc.RpcError):
        return CLOSED
    code, details = error.code(), error.details() or ""
    trailers: Any = error.trailing_metadata() or ()  # pairs of a key and a value
    if code == grpc.StatusCode.CANCELLED:  # not by us
        code, details = grpc.StatusCode.UNAVAILABLE, f"{address} closed while the call was under way"
    pushback = next((parse_pushback(value) for key, value in trailers if key == PUSHBACK_KEY), None)
    return Failure(code, details, repeatable, progressed, pushback)
