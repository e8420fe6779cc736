"""One address of a daemon for the sync client: the channel, and the loop that follows retry.py. Thread-safe."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from typing import Any

import grpc

from hyperserve.errors import error_of
from hyperserve.retry import Attempts, Failure, RetryPolicy
from hyperserve.stream import StreamLeft
from hyperserve.v1 import hyperserve_pb2 as v1
from hyperserve.wire import (
    CLOSED,
    SAMPLE_STREAM,
    TOO_LATE,
    Deadline,
    Method,
    Reply,
    Request,
    channel_options,
    checked,
    failure_of,
    no_connection,
)

WATCH_SECONDS_MAX = 0.2  # `close` waits for a thread that watches the channel
_READY = grpc.ChannelConnectivity.READY.value[0]
_BROKEN = (grpc.ChannelConnectivity.TRANSIENT_FAILURE.value[0], grpc.ChannelConnectivity.SHUTDOWN.value[0])


class Connection:
    def __init__(self, address: str, receive_bytes_max: int) -> None:
        self._address = checked(address)
        self._channel = grpc.insecure_channel(address, channel_options(receive_bytes_max))
        # The calls that grpc.aio and C++ have in public. What the sync channel has in public, `subscribe`, keeps a thread
        # that reports errors of its own when the channel is closed.
        self._states: Any = self._channel._channel  # type: ignore[attr-defined]
        # Held by the one thread that watches the channel: grpc gives each watcher the next event of any of them.
        self._watching = threading.Lock()

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
                except (grpc.RpcError, ValueError) as error:
                    failure = failure_of(self._address, error)
            self._pause(attempts, failure, deadline, request_id)

    def stream(self, policy: RetryPolicy, left: StreamLeft, deadline: Deadline) -> Generator[v1.SampleChunk, None, None]:
        """Each row once and in order. A broken stream goes on after its last row, on the same generation."""
        attempts = Attempts(policy)
        while True:
            failure, before = self._before(deadline), left.done
            if failure is None:
                try:
                    yield from self._chunks(left, deadline)
                    return
                except (grpc.RpcError, ValueError) as error:
                    failure = failure_of(self._address, error, left.resumable, left.done > before)
            self._pause(attempts, failure, deadline, left.request_id)

    def _chunks(self, left: StreamLeft, deadline: Deadline) -> Generator[v1.SampleChunk, None, None]:
        """Those of one attempt."""
        start = self._channel.unary_stream(SAMPLE_STREAM.path, SAMPLE_STREAM.serialize, SAMPLE_STREAM.parse)
        call = start(left.request, timeout=max(deadline.left(), 0))
        try:
            for chunk in call:
                left.take(chunk)
                yield chunk
            left.end()
        finally:
            call.cancel()

    def _before(self, deadline: Deadline) -> Failure | None:
        """Why an attempt cannot be sent."""
        if deadline.left() <= 0:
            return TOO_LATE
        try:
            return None if self._connect(deadline) else no_connection(self._address)
        except ValueError:  # of grpc, on a closed channel
            return CLOSED

    @staticmethod
    def _pause(attempts: Attempts, failure: Failure, deadline: Deadline, request_id: str) -> None:
        """Waits before the next attempt, or raises."""
        delay = attempts.wait_after(failure, deadline.left())
        if delay is None:
            raise error_of(failure.code, failure.message, request_id)
        time.sleep(delay)

    def _connect(self, deadline: Deadline) -> bool:
        """False when connecting fails or the deadline passes."""
        while True:
            state = self._states.check_connectivity_state(True)
            if state == _READY:
                return True
            if state in _BROKEN or not self._watching.acquire(timeout=max(deadline.left(), 0)):
                return False
            try:
                wait = min(deadline.left(), WATCH_SECONDS_MAX)
                if wait <= 0:
                    return False
                self._states.watch_connectivity_state(state, time.time() + wait)
            finally:
                self._watching.release()
