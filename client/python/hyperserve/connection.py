"""One address of a daemon for the sync client: the channel, and the loop that follows retry.py. Thread-safe."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

import grpc

from hyperserve.errors import HyperserveError, error_of
from hyperserve.retry import Attempts, Failure, RetryPolicy
from hyperserve.v1 import hyperserve_pb2 as v1
from hyperserve.wire import (
    SAMPLE_STREAM,
    TOO_LATE,
    Deadline,
    Method,
    Reply,
    Request,
    StreamLeft,
    channel_options,
    failure_of,
    no_connection,
)

_READY = grpc.ChannelConnectivity.READY.value[0]
_BROKEN = (grpc.ChannelConnectivity.TRANSIENT_FAILURE.value[0], grpc.ChannelConnectivity.SHUTDOWN.value[0])


class Connection:
    def __init__(self, address: str, receive_bytes_max: int) -> None:
        self._address = address
        self._channel = grpc.insecure_channel(address, channel_options(receive_bytes_max))
        # The calls that grpc.aio and C++ have in public. What the sync channel has in public, `subscribe`, keeps a thread
        # that reports errors of its own when the channel is closed.
        self._states: Any = self._channel._channel  # type: ignore[attr-defined]

    def close(self) -> None:
        self._channel.close()

    def unary(
        self,
        policy: RetryPolicy,
        method: Method[Request, Reply],
        request: Request,
        deadline: Deadline,
        request_id: str = "",
    ) -> Reply:
        """Blocks until the reply, the deadline or a failure. Repeats where that is safe."""
        call = self._channel.unary_unary(method.path, method.serialize, method.parse)
        attempts = Attempts(policy)
        while True:
            failure = self._before(deadline)
            if failure is None:
                try:
                    return call(request, timeout=max(deadline.left(), 0))
                except grpc.RpcError as error:
                    failure = self._failure(error)
            self._pause(attempts, failure, deadline, request_id)

    def stream(self, policy: RetryPolicy, left: StreamLeft, deadline: Deadline) -> Generator[v1.SampleChunk, None, None]:
        """Each row once and in order. A broken stream goes on after its last row, on the same generation."""
        start = self._channel.unary_stream(SAMPLE_STREAM.path, SAMPLE_STREAM.serialize, SAMPLE_STREAM.parse)
        attempts = Attempts(policy)
        while True:
            failure, before = self._before(deadline), left.done
            if failure is None:
                call = start(left.request, timeout=max(deadline.left(), 0))
                try:
                    for chunk in call:
                        left.take(chunk)
                        yield chunk
                    left.end()
                    return
                except grpc.RpcError as error:
                    failure = self._failure(error, left.resumable, left.done > before)
                finally:
                    call.cancel()
            self._pause(attempts, failure, deadline, left.request_id)

    def _before(self, deadline: Deadline) -> Failure | None:
        """Why an attempt cannot be sent."""
        if deadline.left() <= 0:
            return TOO_LATE
        return None if self._connect(deadline) else no_connection(self._address)

    def _failure(self, error: grpc.RpcError, repeatable: bool = False, progressed: bool = False) -> Failure:
        if not isinstance(error, grpc.Call):
            raise error
        trailers = error.trailing_metadata() or ()
        return failure_of(self._address, error.code(), error.details() or "", trailers, repeatable, progressed)

    @staticmethod
    def _pause(attempts: Attempts, failure: Failure, deadline: Deadline, request_id: str) -> None:
        """Waits before the next attempt, or raises."""
        delay = attempts.wait_after(failure, deadline.left())
        if delay is None:
            raise _raisable(failure, request_id)
        time.sleep(delay)

    def _connect(self, deadline: Deadline) -> bool:
        """False when connecting fails or the deadline passes."""
        end = time.time() + max(deadline.left(), 0)
        while True:
            state = self._states.check_connectivity_state(True)
            if state == _READY:
                return True
            if state in _BROKEN or time.time() >= end:
                return False
            self._states.watch_connectivity_state(state, end)


def _raisable(failure: Failure, request_id: str) -> HyperserveError:
    return error_of(failure.code, failure.message, request_id)
