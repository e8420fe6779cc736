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
from hyperserve.v1 import hyperserve_pb2 as v1

_BROKEN = (grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.SHUTDOWN)


class AsyncConnection:
    """One address: the channel, and the loop that follows retry.py. Belongs to the event loop of its first call."""

    def __init__(self, address: str, receive_bytes_max: int) -> None:
        self._address = address
        self._receive_bytes_max = receive_bytes_max
        self._channel: grpc.aio.Channel | None = None  # opened within the event loop

    async def close(self) -> None:
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
        call = self._open().unary_unary(method.path, method.serialize, method.parse)
        attempts = Attempts(policy)
        while True:
            failure = await self._before(deadline)
            if failure is None:
                try:
                    return await call(request, timeout=max(deadline.left(), 0))
                except grpc.aio.AioRpcError as error:
                    failure = self._failure(error)
            await self._pause(attempts, failure, deadline, request_id)

    async def stream(
        self, policy: RetryPolicy, left: wire.StreamLeft, deadline: wire.Deadline
    ) -> AsyncGenerator[v1.SampleChunk, None]:
        method = wire.SAMPLE_STREAM
        start = self._open().unary_stream(method.path, method.serialize, method.parse)
        attempts = Attempts(policy)
        while True:
            failure, before = await self._before(deadline), left.done
            if failure is None:
                call = start(left.request, timeout=max(deadline.left(), 0))
                try:
                    async for chunk in call:
                        left.take(chunk)
                        yield chunk
                    left.end()
                    return
                except grpc.aio.AioRpcError as error:
                    failure = self._failure(error, left.resumable, left.done > before)
                finally:
                    call.cancel()
            await self._pause(attempts, failure, deadline, left.request_id)

    def _open(self) -> grpc.aio.Channel:
        if self._channel is None:
            self._channel = grpc.aio.insecure_channel(self._address, wire.channel_options(self._receive_bytes_max))
        return self._channel

    async def _before(self, deadline: wire.Deadline) -> Failure | None:
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

    def _failure(self, error: grpc.aio.AioRpcError, repeatable: bool = False, progressed: bool = False) -> Failure:
        trailers = error.trailing_metadata() or ()
        return wire.failure_of(self._address, error.code(), error.details() or "", trailers, repeatable, progressed)

    @staticmethod
    async def _pause(attempts: Attempts, failure: Failure, deadline: wire.Deadline, request_id: str) -> None:
        delay = attempts.wait_after(failure, deadline.left())
        if delay is None:
            raise error_of(failure.code, failure.message, request_id)
        await asyncio.sleep(delay)


class AsyncSampleStream(AsyncIterator[results.SampleChunk]):
    """As hyperserve.SampleStream, for `async for`."""

    def __init__(self, chunks: AsyncGenerator[v1.SampleChunk, None], left: wire.StreamLeft) -> None:
        self._chunks = chunks
        self._left = left

    async def __anext__(self) -> results.SampleChunk:
        return results.sample_chunk(await anext(self._chunks))

    async def aclose(self) -> None:
        """Ends the stream early."""
        await self._chunks.aclose()

    @property
    def rows(self) -> int:
        return self._left.rows

    @property
    def done(self) -> int:
        return self._left.done

    @property
    def info(self) -> results.SolveInfo | None:
        summary = self._left.summary
        return None if summary is None else results.solve_info(summary, self.rows)


class AsyncClient:
    """As hyperserve.Client. Belongs to one event loop; its calls may run at once and share one connection."""

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
        request = requests.classify(model, inputs, top_k, probabilities, logits, state, options)
        return results.classify_result(await self._solving(wire.CLASSIFY, request, request.options, options))

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
        request = requests.sample(model, rows, seed, first_row, log_density, options)
        return results.sample_result(await self._solving(wire.SAMPLE, request, request.options, options))

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
        left = wire.StreamLeft(requests.sample(model, rows, seed, first_row, log_density, options), chunk_rows)
        return AsyncSampleStream(self._connection.stream(self._retry, left, self._deadline(options)), left)

    async def log_prob(self, model: str, inputs: Any, **options: Unpack[Options]) -> results.LogProbResult:
        request = requests.log_prob(model, inputs, options)
        return results.log_prob_result(await self._solving(wire.LOG_PROB, request, request.options, options))

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
        request = requests.solve(model, inputs, state, span, save_at, partial_states, direction, options)
        return results.solve_result(await self._solving(wire.SOLVE, request, request.options, options))

    async def models(self, *, timeout: float | None = None) -> list[catalog.Model]:
        return catalog.models(await self._plain(wire.LIST_MODELS, v1.ListModelsRequest(), timeout))

    async def model(self, name: str, *, timeout: float | None = None) -> catalog.ModelDetail:
        return catalog.model_detail(await self._plain(wire.GET_MODEL, v1.GetModelRequest(model=name), timeout))

    async def server_info(self, *, timeout: float | None = None) -> catalog.ServerInfo:
        return catalog.server_info(await self._plain(wire.GET_SERVER_INFO, v1.GetServerInfoRequest(), timeout))

    def _deadline(self, options: Options) -> wire.Deadline:
        return wire.Deadline(options.get("timeout", self._timeout))

    async def _solving(
        self,
        method: wire.Method[wire.Request, wire.Reply],
        request: wire.Request,
        named: v1.SolveOptions,
        options: Options,
    ) -> wire.Reply:
        return await self._connection.unary(self._retry, method, request, self._deadline(options), named.request_id)

    async def _plain(
        self, method: wire.Method[wire.Request, wire.Reply], request: wire.Request, timeout: float | None
    ) -> wire.Reply:
        deadline = wire.Deadline(self._timeout if timeout is None else timeout)
        return await self._connection.unary(self._retry, method, request, deadline)
