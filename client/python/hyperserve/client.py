"""The sync client of a daemon."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

from hyperserve import catalog, requests, results, wire
from hyperserve.connection import Connection
from hyperserve.requests import Options
from hyperserve.retry import RetryPolicy
from hyperserve.stream import Progress, StreamLeft
from hyperserve.v1 import hyperserve_pb2 as v1

ADDRESS = "127.0.0.1:8500"
TIMEOUT = 30.0


class SampleStream(Progress, Iterator[results.SampleChunk]):
    """Chunks of samples, in row order."""

    def __init__(self, chunks: Generator[v1.SampleChunk, None, None], left: StreamLeft) -> None:
        super().__init__(left)
        self._chunks = chunks

    def __next__(self) -> results.SampleChunk:
        return results.sample_chunk(next(self._chunks))

    def close(self) -> None:
        """Ends the stream early."""
        self._chunks.close()


class Client:
    """Calls a daemon. Thread-safe; all calls share one connection, which the first call opens.

    A call that fails raises the exception of its code (hyperserve.errors), TypeError for what is no array of numbers, and
    ValueError for a timeout that is not positive and finite. Every call has a deadline: `timeout` seconds, retries
    included. Arrays go in as anything that numpy or torch holds, uint8 as it is and other numbers as float32, or as float64
    for a plan in tier double. Calls that solve take the options of hyperserve.requests.Options by name. Rows that fail do
    not fail the call: they hold NaN (labels -1), and `info.failed_rows` numbers them.
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
        """Ends the connection; calls that are under way fail, and later ones as well: UnavailableError."""
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
        """Labels of inputs [rows, input shape]: uint8 images, or numbers as the model takes them.

        `top_k`: the k most probable classes with their probabilities; 0: none. `logits`, `probabilities` and `state`, which
        is z at the end of the solve, are returned where they are asked for.
        """
        return self._run(requests.classify(model, inputs, top_k, probabilities, logits, state, options))

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
        """Samples [rows, dimensions] of a flow: first_row to first_row + rows - 1 of the sequence that `seed` begins.

        With `log_density`, log p of each as well: [rows], in nats.
        """
        return self._run(requests.sample(model, rows, seed, first_row, log_density, options))

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
        """The same samples in chunks of `chunk_rows`, any number of rows; solved as they are read. 0: the server chooses.

        The first `next` makes the call; the deadline begins here.
        """
        left = requests.sample_stream(model, rows, seed, first_row, log_density, chunk_rows, options)
        return SampleStream(self._connection.stream(self._retry, left, self._deadline(options.get("timeout"))), left)

    def log_prob(
        self, model: str, inputs: Any, *, first_row: int = 0, **options: Unpack[Options]
    ) -> results.LogProbResult:
        """log p(x) of points [rows, state shape] of a flow: float64 [rows], in nats.

        `first_row` is the number of the first row. In more than 64 dimensions the probes of a row are those of `probe_seed` and its
        number, so a slice of rows that says where it begins is answered as it is within all of them.
        """
        return self._run(requests.log_prob(model, inputs, first_row, options))

    def log_prob_gradient(self, model: str, inputs: Any, **options: Unpack[Options]) -> results.LogProbGradientResult:
        """log p(x) as `log_prob`, with its gradients by the points and by the condition; of a plan as in `solve_vjp`."""
        return self._run(requests.log_prob_gradient(model, inputs, options))

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
        """The initial value problem from either `inputs` x [rows, input shape] or `state` z [rows, state shape].

        Inputs go through the stem first; a state stands at the begin of the span. `span` is (begin, end), begin <= end; None:
        the model's. `save_at` holds strictly increasing depths within it, at which the states are returned as well. With
        `partial_states`, rows that failed keep their last state, instead of NaN,
        and `stopped_at` says at which depth. `direction` of a flow: "noise_to_data" or "data_to_noise"; empty: that of its field.
        """
        return self._run(requests.solve(model, inputs, state, span, save_at, partial_states, direction, options))

    def predict(
        self, model: str, inputs: Any, *, save_at: Sequence[float] = (), **options: Unpack[Options]
    ) -> results.Prediction:
        """The outputs of a regressor, [rows, outputs], or the states of a trajectory, [rows, depths, state shape].

        `inputs` are [rows, input shape]. `save_at` holds other depths than the trajectory's own.
        """
        return self._run(requests.predict(model, inputs, save_at, options))

    def solve_vjp(
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
        """The cotangent of z at the end, [rows, state shape], pulled back to the start and the condition.

        The other arguments are those of `solve`. The derivative is that of the steps which the plan takes, so it wants a plan of
        fixed steps or a learned one. With `knots`, that of the condition is by its values at them: [rows, knots, features].
        The weights of `guidance` are constants.
        """
        return self._run(requests.solve_vjp(model, inputs, state, cotangent, span, direction, options))

    def solve_jvp(
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
        """The tangent of the start, in its shape, and that of the condition pushed to z at the end; as `solve_vjp`.

        At least one of the two is given; the other one is zero. `condition_tangent`: one a row, or one for all rows, at the knots where the condition is.
        """
        return self._run(requests.solve_jvp(model, inputs, state, tangent, condition_tangent, span, direction, options))

    def models(self, *, timeout: float | None = None) -> list[catalog.Model]:
        """All models that are served, sorted by name."""
        return self._run(requests.models(timeout))

    def model(self, name: str, *, timeout: float | None = None) -> catalog.ModelDetail:
        """One model with its shapes and every measured plan."""
        return self._run(requests.model(name, timeout))

    def server_info(self, *, timeout: float | None = None) -> catalog.ServerInfo:
        """Version, devices, engines and limits of the daemon."""
        return self._run(requests.server_info(timeout))

    def _deadline(self, timeout: float | None) -> wire.Deadline:
        return wire.Deadline(self._timeout if timeout is None else timeout)

    def _run(self, call: requests.Call[wire.Request, wire.Reply, requests.Result]) -> requests.Result:
        deadline = self._deadline(call.timeout)
        return call.read(self._connection.unary(self._retry, call.method, call.request, deadline, call.request_id))
