"""The sync client of a daemon."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

from hyperserve import catalog, requests, results, wire
from hyperserve.connection import Connection
from hyperserve.requests import Options
from hyperserve.retry import RetryPolicy
from hyperserve.v1 import hyperserve_pb2 as v1

ADDRESS = "127.0.0.1:8500"
TIMEOUT = 30.0


class SampleStream(Iterator[results.SampleChunk]):
    """Chunks of samples, in row order. `done` of `rows` have arrived. `info` is the summary, after the last chunk."""

    def __init__(self, chunks: Generator[v1.SampleChunk, None, None], left: wire.StreamLeft) -> None:
        self._chunks = chunks
        self._left = left

    def __next__(self) -> results.SampleChunk:
        return results.sample_chunk(next(self._chunks))

    def close(self) -> None:
        """Ends the stream early."""
        self._chunks.close()

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


class Client:
    """Calls a daemon. Thread-safe; all calls share one connection, which the first call opens.

    Calls raise the exceptions of hyperserve.errors. Every call has a deadline: `timeout` seconds, retries included.
    Calls that solve take the options of hyperserve.requests.Options by name. Rows that fail do not fail the call: see
    `info.failed_rows`.
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
        self._connection = Connection(address, receive_bytes_max)

    def close(self) -> None:
        """Ends the connection; calls that are under way fail."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def classify(
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
        """Labels of inputs [rows, input shape]: uint8 images, or numbers as the model takes them."""
        request = requests.classify(model, inputs, top_k, probabilities, logits, state, options)
        return results.classify_result(self._solving(wire.CLASSIFY, request, request.options, options))

    def sample(
        self,
        model: str,
        rows: int,
        *,
        seed: int = 0,
        first_row: int = 0,
        log_density: bool = False,
        **options: Unpack[Options],
    ) -> results.SampleResult:
        """Samples first_row to first_row + rows - 1 of the sequence that `seed` begins."""
        request = requests.sample(model, rows, seed, first_row, log_density, options)
        return results.sample_result(self._solving(wire.SAMPLE, request, request.options, options))

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
    ) -> SampleStream:
        """The same samples in chunks, any number of rows; solved as they are read. The first `next` makes the call."""
        left = wire.StreamLeft(requests.sample(model, rows, seed, first_row, log_density, options), chunk_rows)
        return SampleStream(self._connection.stream(self._retry, left, self._deadline(options)), left)

    def log_prob(self, model: str, inputs: Any, **options: Unpack[Options]) -> results.LogProbResult:
        """log p(x) of points [rows, dimensions]."""
        request = requests.log_prob(model, inputs, options)
        return results.log_prob_result(self._solving(wire.LOG_PROB, request, request.options, options))

    def solve(
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
        """The initial value problem: from inputs x or from states z, over the model's span or another.

        `direction` of a flow: "noise_to_data" or "data_to_noise"; empty: that of its field."""
        request = requests.solve(model, inputs, state, span, save_at, partial_states, direction, options)
        return results.solve_result(self._solving(wire.SOLVE, request, request.options, options))

    def models(self, *, timeout: float | None = None) -> list[catalog.Model]:
        """All models that are served, sorted by name."""
        return catalog.models(self._plain(wire.LIST_MODELS, v1.ListModelsRequest(), timeout))

    def model(self, name: str, *, timeout: float | None = None) -> catalog.ModelDetail:
        """One model with its shapes and every measured plan."""
        return catalog.model_detail(self._plain(wire.GET_MODEL, v1.GetModelRequest(model=name), timeout))

    def server_info(self, *, timeout: float | None = None) -> catalog.ServerInfo:
        """Version, devices, engines and limits of the daemon."""
        return catalog.server_info(self._plain(wire.GET_SERVER_INFO, v1.GetServerInfoRequest(), timeout))

    def _deadline(self, options: Options) -> wire.Deadline:
        return wire.Deadline(options.get("timeout", self._timeout))

    def _solving(
        self,
        method: wire.Method[wire.Request, wire.Reply],
        request: wire.Request,
        named: v1.SolveOptions,
        options: Options,
    ) -> wire.Reply:
        return self._connection.unary(self._retry, method, request, self._deadline(options), named.request_id)

    def _plain(
        self, method: wire.Method[wire.Request, wire.Reply], request: wire.Request, timeout: float | None
    ) -> wire.Reply:
        deadline = wire.Deadline(self._timeout if timeout is None else timeout)
        return self._connection.unary(self._retry, method, request, deadline)
