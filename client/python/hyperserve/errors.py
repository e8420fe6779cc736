"""One exception for each code of the wire. The message is the server's."""

from __future__ import annotations

import grpc


class HyperserveError(Exception):
    """A call that failed. `code` is gRPC's, `message` the server's words, `request_id` stands in the server's log."""

    code: grpc.StatusCode = grpc.StatusCode.UNKNOWN

    def __init__(self, message: str, request_id: str = "") -> None:
        suffix = f" (request {request_id})" if request_id else ""
        super().__init__(f"{self.code.name}: {message}{suffix}")
        self.message = message
        self.request_id = request_id

    def __reduce__(self) -> tuple[type[HyperserveError], tuple[str, str]]:
        return type(self), (self.message, self.request_id)  # what __init__ takes; `args` holds the whole text


class InvalidArgumentError(HyperserveError):
    """Wrong for every server: shape, dtype, NaN, an unknown method, too many rows or steps."""

    code = grpc.StatusCode.INVALID_ARGUMENT


class NotFoundError(HyperserveError):
    """No such model, generation or correction."""

    code = grpc.StatusCode.NOT_FOUND


class AlreadyExistsError(HyperserveError):
    """A model of that name is loaded."""

    code = grpc.StatusCode.ALREADY_EXISTS


class FailedPreconditionError(HyperserveError):
    """An artefact that does not fit its model or did not pass its check; a correction outside its range."""

    code = grpc.StatusCode.FAILED_PRECONDITION


class AbortedError(HyperserveError):
    """A publication whose parent generation is no longer active."""

    code = grpc.StatusCode.ABORTED


class ResourceExhaustedError(HyperserveError):
    """The daemon is full, or a message is larger than its limit."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED


class DeadlineExceededError(HyperserveError, TimeoutError):
    """The deadline passed."""

    code = grpc.StatusCode.DEADLINE_EXCEEDED


class CancelledError(HyperserveError):
    """The call was cancelled."""

    code = grpc.StatusCode.CANCELLED


class UnavailableError(HyperserveError, ConnectionError):
    """There is no connection, or it broke; the daemon loads or drains."""

    code = grpc.StatusCode.UNAVAILABLE


class UnimplementedError(HyperserveError):
    """Named in the protocol, not built yet."""

    code = grpc.StatusCode.UNIMPLEMENTED


class InternalError(HyperserveError):
    """The daemon's fault, or a reply that does not fit together."""

    code = grpc.StatusCode.INTERNAL


class UnknownError(HyperserveError):
    """A failure without a known code."""

    code = grpc.StatusCode.UNKNOWN


class OutOfRangeError(HyperserveError):
    """Not sent by this daemon; a proxy may."""

    code = grpc.StatusCode.OUT_OF_RANGE


class PermissionDeniedError(HyperserveError):
    """Not sent by this daemon; a proxy may."""

    code = grpc.StatusCode.PERMISSION_DENIED


class UnauthenticatedError(HyperserveError):
    """Not sent by this daemon; a proxy may."""

    code = grpc.StatusCode.UNAUTHENTICATED


class DataLossError(HyperserveError):
    """Not sent by this daemon; a proxy may."""

    code = grpc.StatusCode.DATA_LOSS


_BY_CODE = {kind.code: kind for kind in HyperserveError.__subclasses__()}


def error_of(code: grpc.StatusCode, message: str, request_id: str = "") -> HyperserveError:
    """The exception of a code, not raised."""
    return _BY_CODE.get(code, UnknownError)(message, request_id)
