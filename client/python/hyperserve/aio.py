"""The asyncio client of a daemon: the calls of hyperserve.Client, awaited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

import grpc
import grpc.aio

from hyperserve import catalog, requests, results, wire
from hyperserve.client import ADDRESS, TIMEOUT
from hyperserve.errors import error_of
from hyperserve.requests import Options
from hyperserve.retry import Attempts, Failure, RetryPolicy
from hyperserve.stream import Progress, StreamLeft
from hyperserve.v1 import hyperserve_pb2 as v1

_BROKEN = (grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.SHUTDOWN)


class AsyncConnection:
    """One address: the channel, and the loop that follows retry.py. Belongs to one event loop, after its end to the next."""

    def __init__(self, address: str, receive_bytes_max: int) -> None:
        self._address = wire.checked(address)
        self._receive_bytes_max = receive_bytes_max
        self._channel: grpc.aio.Channel | None = None  # opened within the event loop
        self._loop: asyncio.AbstractEventLoop | None = None  # of the channel
        self._closed = False

    async def close(self) -> None:
        if self._is_elsewhere():
            raise error_of(wire.ELSEWHERE.code, wire.ELSEWHERE.message)
        self._closed = True
        if self._channel is not None:
            await self._channel.close()

    async def unary(
        self,
        policy: RetryPolicy,
        method: wire.Method[wire.Request, wire.Reply],
        request: wire.Request,
        deadline: wire.Deadline,
        request_id: str = "",
    ) -> wire.Reply:
        attempts = Attempts(policy)
        while True:
            failure = await self._before(deadline)
            if failure is None:
                call = self._open().unary_unary(method.path, method.serialize, method.parse)
                try:
                    return await call(request, timeout=max(deadline.left(), 0))
                except (grpc.RpcError, grpc.aio.UsageError) as error:
                    failure = wire.failure_of(self._address, error)
                except asyncio.CancelledError:
                    if not self._closed_under_way():
                        raise
                    failure = wire.CLOSED
            await self._pause(attempts, failure, deadline, request_id)

    async def stream(
        self, policy: RetryPolicy, left: StreamLeft, deadline: wire.Deadline
    ) -> AsyncGenerator[v1.SampleChunk, None]:
        method = wire.SAMPLE_STREAM
        attempts = Attempts(policy)
        while True:
            failure, before = await self._before(deadline), left.done
            if failure is None:
                start = self._open().unary_stream(method.path, method.serialize, method.parse)
                call = start(left.request, timeout=max(deadline.left(), 0))
                try:
                    async for chunk in call:
                        left.take(chunk)
                        yield chunk
                    left.end()
                    return
                except grpc.RpcError as error:
                    failure = wire.failure_of(self._address, error, left.resumable, left.done > before)
                except asyncio.CancelledError:
                    if not self._closed_under_way():
                        raise
                    failure = wire.CLOSED
                finally:
                    call.cancel()
            await self._pause(attempts, failure, deadline, left.request_id)

    def _open(self) -> grpc.aio.Channel:
        if self._channel is None:
            self._loop = asyncio.get_running_loop()
            self._channel = grpc.aio.insecure_channel(self._address, wire.channel_options(self._receive_bytes_max))
        return self._channel

    def _is_elsewhere(self) -> bool:
        """Whether the channel is that of another event loop. That of a loop which has ended is forgotten."""
        if self._channel is not None and self._loop is not None and self._loop.is_closed():
            self._channel = None
        return self._channel is not None and self._loop is not asyncio.get_running_loop()

    def _closed_under_way(self) -> bool:
        """Whether `close` cancelled a call, and not somebody its task."""
        task = asyncio.current_task()
        return self._closed and (task is None or not task.cancelling())

    async def _before(self, deadline: wire.Deadline) -> Failure | None:
        if self._closed:
            return wire.CLOSED
        if self._is_elsewhere():
            return wire.ELSEWHERE
        if deadline.left() <= 0:
            return wire.TOO_LATE
        return None if await self._connect(deadline) else wire.no_connection(self._address)

    async def _connect(self, deadline: wire.Deadline) -> bool:
        """False when connecting fails or the deadline passes."""
        channel = self._open()
        try:
            async with asyncio.timeout(max(deadline.left(), 0)):
                while True:
                    state = channel.get_state(try_to_connect=True)
                    if state is grpc.ChannelConnectivity.READY:
                        return True
                    if state in _BROKEN:
                        return False
                    await channel.wait_for_state_change(state)
        except TimeoutError:
            return False

    @staticmethod
    async def _pause(attempts: Attempts, failure: Failure, deadline: wire.Deadline, request_id: str) -> None:
        delay = attempts.wait_after(failure, deadline.left())
        if delay is None:
            raise error_of(failure.code, failure.message, request_id)
        await asyncio.sleep(delay)


class AsyncSampleStream(Progress, AsyncIterator[results.SampleChunk]):
    """As hyperserve.SampleStream, for `async for`."""

    def __init__(self, chunks: AsyncGenerator[v1.SampleChunk, None], left: StreamLeft) -> None:
        super().__init__(left)
        self._chunks = chunks

    async def __anext__(self) -> results.SampleChunk:
        return results.sample_chunk(await anext(self._chunks))

    async def aclose(self) -> None:
        """Ends the stream early."""
        await self._chunks.aclose()


class AsyncClient:
    """As hyperserve.Client. Its calls may run at once and share one connection.

    It belongs to the event loop of its first call, and after the end of that one to the next: several `asyncio.run` may
    use it in turn, threads with a loop each may not.
    """

    def __init__(
        self,
        address: str = ADDRESS,
        *,
        timeout: float = TIMEOUT,
        retry: RetryPolicy = RetryPolicy(),
        receive_bytes_max: int = wire.RECEIVE_BYTES_MAX,
    ) -> None:
        wire.Deadline(timeout)  # refuses a bad one now
        self._timeout = timeout
        self._retry = retry
        self._connection = AsyncConnection(address, receive_bytes_max)

    async def close(self) -> None:
        """As Client.close."""
        await self._connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def classify(
        self,
        model: str,
        inputs: Any,
        *,
        top_k: int = 0,
        probabilities: bool = False,
        logits: bool = False,
        state: bool = False,
        **options: Unpack[Options],
    ) -> results.ClassifyResult:
        """As Client.classify."""
        return await self._run(requests.classify(model, inputs, top_k, probabilities, logits, state, options))

    async def sample(
        self,
        model: str,
        rows: int,
        *,
        seed: int = 0,
        first_row: int = 0,
        log_density: bool = False,
        **options: Unpack[Options],
    ) -> results.SampleResult:
        """As Client.sample."""
        return await self._run(requests.sample(model, rows, seed, first_row, log_density, options))

    def sample_stream(
        self,
        model: str,
        rows: int,
        *,
        seed: int = 0,
        first_row: int = 0,
        log_density: bool = False,
        chunk_rows: int = 0,
        **options: Unpack[Options],
    ) -> AsyncSampleStream:
        """As Client.sample_stream."""
        left = requests.sample_stream(model, rows, seed, first_row, log_density, chunk_rows, options)
        return AsyncSampleStream(self._connection.stream(self._retry, left, self._deadline(options.get("timeout"))), left)

    async def log_prob(
        self, model: str, inputs: Any, *, first_row: int = 0, **options: Unpack[Options]
    ) -> results.LogProbResult:
        """As Client.log_prob."""
        return await self._run(requests.log_prob(model, inputs, first_row, options))

    async def log_prob_gradient(self, model: str, inputs: Any, **options: Unpack[Options]) -> results.LogProbGradientResult:
        """As Client.log_prob_gradient."""
        return await self._run(requests.log_prob_gradient(model, inputs, options))

    async def solve(
        self,
        model: str,
        inputs: Any = None,
        *,
        state: Any = None,
        span: tuple[float, float] | None = None,
        save_at: Sequence[float] = (),
        partial_states: bool = False,
        direction: str = "",
        **options: Unpack[Options],
    ) -> results.SolveResult:
        """As Client.solve."""
        return await self._run(requests.solve(model, inputs, state, span, save_at, partial_states, direction, options))

    async def predict(
        self, model: str, inputs: Any, *, save_at: Sequence[float] = (), **options: Unpack[Options]
    ) -> results.Prediction:
        """As Client.predict."""
        return await self._run(requests.predict(model, inputs, save_at, options))

    async def solve_vjp(
        self,
        model: str,
        inputs: Any = None,
        *,
        cotangent: Any,
        state: Any = None,
        span: tuple[float, float] | None = None,
        direction: str = "",
        **options: Unpack[Options],
    ) -> results.SolveVjpResult:
        """As Client.solve_vjp."""
        return await self._run(requests.solve_vjp(model, inputs, state, cotangent, span, direction, options))

    async def solve_jvp(
        self,
        model: str,
        inputs: Any = None,
        *,
        tangent: Any = None,
        condition_tangent: Any = None,
        state: Any = None,
        span: tuple[float, float] | None = None,
        direction: str = "",
        **options: Unpack[Options],
    ) -> results.SolveJvpResult:
        """As Client.solve_jvp."""
        return await self._run(requests.solve_jvp(model, inputs, state, tangent, condition_tangent, span, direction, options))

    async def models(self, *, timeout: float | None = None) -> list[catalog.Model]:
        """As Client.models."""
        return await self._run(requests.models(timeout))

    async def model(self, name: str, *, timeout: float | None = None) -> catalog.ModelDetail:
        """As Client.model."""
        return await self._run(requests.model(name, timeout))

    async def server_info(self, *, timeout: float | None = None) -> catalog.ServerInfo:
        """As Client.server_info."""
        return await self._run(requests.server_info(timeout))

    def _deadline(self, timeout: float | None) -> wire.Deadline:
        return wire.Deadline(self._timeout if timeout is None else timeout)

    async def _run(self, call: requests.Call[wire.Request, wire.Reply, requests.Result]) -> requests.Result:
        deadline = self._deadline(call.timeout)
        return call.read(await self._connection.unary(self._retry, call.method, call.request, deadline, call.request_id))
