"""Calls of the wire from the arguments of Python. Pure; the sync and the asyncio client share them."""

from __future__ import annotations

import dataclasses
import itertools
import secrets
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypedDict, TypeVar

import numpy as np

from hyperserve import catalog, results, wire
from hyperserve.arrays import as_numpy, to_wire
from hyperserve.stream import StreamLeft
from hyperserve.v1 import hyperserve_pb2 as v1

Result = TypeVar("Result")


@dataclasses.dataclass(frozen=True)
class Call(Generic[wire.Request, wire.Reply, Result]):
    """What is sent, and how the reply is read."""

    method: wire.Method[wire.Request, wire.Reply]
    request: wire.Request
    read: Callable[[wire.Reply], Result]
    timeout: float | None  # seconds; None: the client's
    request_id: str = ""


class Options(TypedDict, total=False):
    """What every call that solves takes by name."""

    plan: str  # "euler:4", "learned:4", "dopri5:1e-5/double", "auto:1e-2,per_row"; absent: the model's default
    timeout: float | None  # seconds, retries included; absent or None: the client's
    max_steps: int  # of an adaptive row; absent: the server's limit
    generation: int  # of the correction: the active or the previous one; absent: the active one
    error_bound: bool  # asks for a bound of each row's error: SolveInfo.error_bound
    request_id: str  # returned and logged; absent: made here
    max_reply_bytes: int  # absent: the server's default, 4 MiB less 64 KiB
    condition: Any  # of a conditional model: [rows, condition_shape], or one for all rows: [condition_shape]
    knots: Sequence[float] | None  # depths of a condition that changes: it is [rows, knots, ...], or [knots, ...] for all rows
    interpolation: str  # between the knots: "linear" or absent, "cubic_hermite"
    probes: int  # by which a log-density in more than 64 dimensions is estimated, 2 to 64; absent: 8
    probe_seed: int  # of these
    guidance: Any  # its weight: a number for all rows, [rows], or one for each step: [rows, steps] or [1, steps]


_prefix = secrets.token_hex(4)
_numbers = itertools.count(1)


def _for_rows(given: Any, options: Options) -> v1.Tensor | None:
    """One for each row, or one for all."""
    if given is None:
        return None
    array = as_numpy(given)
    if array.dtype == np.uint8:
        array = array.astype(np.float32)
    of_all = array.ndim == (1 if options.get("knots") is None else 2)
    return to_wire(array[np.newaxis] if of_all else array, _double(options))


def _knots(options: Options) -> v1.ConditionKnots | None:
    knots = options.get("knots")
    if knots is None:
        if options.get("interpolation"):
            raise TypeError("interpolation goes between knots; give knots too")
        return None
    return v1.ConditionKnots(depths=[float(s) for s in knots], interpolation=options.get("interpolation", ""))


def _guidance(options: Options) -> v1.Tensor | None:
    given = options.get("guidance")
    if given is None:
        return None
    array = np.asarray(as_numpy(given), np.float64)
    return to_wire(array[np.newaxis] if array.ndim == 0 else array, True)


def _plan(options: Options) -> v1.Plan | None:
    plan = options.get("plan")
    if plan and not isinstance(plan, str):
        raise TypeError(f"plan={plan!r}: a text is wanted, as in 'euler:4'")
    return v1.Plan(text=plan) if plan else None


def _solve_options(model: str, options: Options) -> v1.SolveOptions:
    unknown = set(options) - Options.__annotations__.keys()
    if unknown:
        raise TypeError(f"no option is called {', '.join(sorted(unknown))}; there are {', '.join(Options.__annotations__)}")
    return wire.message(
        v1.SolveOptions,
        model=model,
        plan=_plan(options),
        max_steps=options.get("max_steps", 0),
        generation=options.get("generation", 0),
        want_error_bound=options.get("error_bound", False),
        request_id=options.get("request_id") or f"{_prefix}-{next(_numbers)}",
        max_reply_bytes=options.get("max_reply_bytes", 0),
        condition=_for_rows(options.get("condition"), options),
        condition_knots=_knots(options),
        guidance=_guidance(options),
        probes=options.get("probes", 0),
        probe_seed=options.get("probe_seed", 0),
    )


def _double(options: Options) -> bool:
    return (options.get("plan") or "").endswith("/double")


def classify(
    model: str, inputs: Any, top_k: int, probabilities: bool, logits: bool, state: bool, options: Options
) -> Call[v1.ClassifyRequest, v1.ClassifyReply, results.ClassifyResult]:
    request = v1.ClassifyRequest(
        options=_solve_options(model, options),
        inputs=to_wire(inputs, _double(options)),
        want=wire.message(v1.ClassifyWant, labels=True, top_k=top_k, probabilities=probabilities, logits=logits, state=state),
    )
    return _solving(wire.CLASSIFY, request, results.classify_result, request.options, options)


def sample(
    model: str, rows: int, seed: int, first_row: int, log_density: bool, options: Options
) -> Call[v1.SampleRequest, v1.SampleReply, results.SampleResult]:
    request = wire.message(
        v1.SampleRequest,
        options=_solve_options(model, options),
        rows=rows,
        seed=seed,
        first_row=first_row,
        log_density=log_density,
    )
    return _solving(wire.SAMPLE, request, results.sample_result, request.options, options)


def sample_stream(
    model: str, rows: int, seed: int, first_row: int, log_density: bool, chunk_rows: int, options: Options
) -> StreamLeft:
    return StreamLeft(sample(model, rows, seed, first_row, log_density, options).request, chunk_rows)


def log_prob(
    model: str, inputs: Any, first_row: int, options: Options
) -> Call[v1.LogProbRequest, v1.LogProbReply, results.LogProbResult]:
    request = wire.message(
        v1.LogProbRequest,
        options=_solve_options(model, options),
        inputs=to_wire(inputs, _double(options)),
        first_row=first_row,
    )
    return _solving(wire.LOG_PROB, request, results.log_prob_result, request.options, options)


def log_prob_gradient(
    model: str, inputs: Any, options: Options
) -> Call[v1.LogProbGradientRequest, v1.LogProbGradientReply, results.LogProbGradientResult]:
    request = v1.LogProbGradientRequest(options=_solve_options(model, options), inputs=to_wire(inputs, _double(options)))
    return _solving(wire.LOG_PROB_GRADIENT, request, results.log_prob_gradient_result, request.options, options)


def solve(
    model: str,
    inputs: Any,
    state: Any,
    span: tuple[float, float] | None,
    save_at: Sequence[float],
    partial_states: bool,
    direction: str,
    options: Options,
) -> Call[v1.SolveRequest, v1.SolveReply, results.SolveResult]:
    request = _solve_request(model, inputs, state, span, direction, options)
    request.save_at.extend(float(s) for s in save_at)
    request.partial_states = partial_states
    return _solving(wire.SOLVE, request, results.solve_result, request.options, options)


def predict(
    model: str, inputs: Any, save_at: Sequence[float], options: Options
) -> Call[v1.SolveRequest, v1.SolveReply, results.Prediction]:
    call = solve(model, inputs, None, None, save_at, False, "", options)
    return Call(call.method, call.request, results.prediction, call.timeout, call.request_id)


def solve_vjp(
    model: str,
    inputs: Any,
    state: Any,
    cotangent: Any,
    span: tuple[float, float] | None,
    direction: str,
    options: Options,
) -> Call[v1.SolveVjpRequest, v1.SolveVjpReply, results.SolveVjpResult]:
    solve = _solve_request(model, inputs, state, span, direction, options)
    request = v1.SolveVjpRequest(solve=solve, cotangent=to_wire(cotangent, _double(options)))
    return _solving(wire.SOLVE_VJP, request, results.solve_vjp_result, solve.options, options)


def solve_jvp(
    model: str,
    inputs: Any,
    state: Any,
    tangent: Any,
    condition_tangent: Any,
    span: tuple[float, float] | None,
    direction: str,
    options: Options,
) -> Call[v1.SolveJvpRequest, v1.SolveJvpReply, results.SolveJvpResult]:
    solve = _solve_request(model, inputs, state, span, direction, options)
    request = v1.SolveJvpRequest(
        solve=solve,
        start_tangent=None if tangent is None else to_wire(tangent, _double(options)),
        condition_tangent=_for_rows(condition_tangent, options),
    )
    return _solving(wire.SOLVE_JVP, request, results.solve_jvp_result, solve.options, options)


def _solve_request(
    model: str, inputs: Any, state: Any, span: tuple[float, float] | None, direction: str, options: Options
) -> v1.SolveRequest:
    if (inputs is None) == (state is None):
        raise TypeError("solve takes either inputs (x, before the stem) or state (z at the start)")
    request = v1.SolveRequest(options=_solve_options(model, options), direction=direction)
    if state is None:
        request.inputs.CopyFrom(to_wire(inputs, _double(options)))
    else:
        request.state.CopyFrom(to_wire(state, _double(options)))
    if span is not None:
        if np.shape(span) != (2,):
            raise ValueError(f"span={span!r}; two depths are wanted, where the solve begins and where it ends")
        begin, end = span
        request.span.CopyFrom(v1.Span(begin=begin, end=end))
    return request


def models(timeout: float | None) -> Call[v1.ListModelsRequest, v1.ListModelsReply, list[catalog.Model]]:
    return Call(wire.LIST_MODELS, v1.ListModelsRequest(), catalog.models, timeout)


def model(name: str, timeout: float | None) -> Call[v1.GetModelRequest, v1.GetModelReply, catalog.ModelDetail]:
    return Call(wire.GET_MODEL, v1.GetModelRequest(model=name), catalog.model_detail, timeout)


def server_info(
    timeout: float | None,
) -> Call[v1.GetServerInfoRequest, v1.GetServerInfoReply, catalog.ServerInfo]:
    return Call(wire.GET_SERVER_INFO, v1.GetServerInfoRequest(), catalog.server_info, timeout)


def _solving(
    method: wire.Method[wire.Request, wire.Reply],
    request: wire.Request,
    read: Callable[[wire.Reply], Result],
    sent: v1.SolveOptions,
    options: Options,
) -> Call[wire.Request, wire.Reply, Result]:
    return Call(method, request, read, options.get("timeout"), sent.request_id)
