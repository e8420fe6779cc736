"""Requests of the wire from the arguments of calls. Pure; the sync and the asyncio client share them."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Sequence
from typing import Any, TypedDict

from hyperserve.arrays import to_wire
from hyperserve.v1 import hyperserve_pb2 as v1


class Options(TypedDict, total=False):
    """What every call that solves takes by name."""

    plan: str  # "euler:4", "hyper_heun:2", "dopri5:1e-5/double"; absent: the model's default
    timeout: float  # seconds, retries included; absent: the client's
    max_steps: int  # of an adaptive row; absent: the server's limit
    generation: int  # of the correction: the active or the previous one; absent: the active one
    request_id: str  # returned and logged; absent: made here
    max_reply_bytes: int  # absent: the server's default, 4 MiB less 64 KiB


_prefix = secrets.token_hex(4)
_numbers = itertools.count(1)


def solve_options(model: str, options: Options) -> v1.SolveOptions:
    unknown = set(options) - Options.__annotations__.keys()
    if unknown:
        raise TypeError(f"no option is called {', '.join(sorted(unknown))}; there are {', '.join(Options.__annotations__)}")
    return v1.SolveOptions(
        model=model,
        plan=v1.Plan(text=options["plan"]) if options.get("plan") else None,
        max_steps=options.get("max_steps", 0),
        generation=options.get("generation", 0),
        request_id=options.get("request_id") or f"{_prefix}-{next(_numbers)}",
        max_reply_bytes=options.get("max_reply_bytes", 0),
    )


def _double(options: Options) -> bool:
    return (options.get("plan") or "").endswith("/double")


def classify(
    model: str, inputs: Any, top_k: int, probabilities: bool, logits: bool, state: bool, options: Options
) -> v1.ClassifyRequest:
    return v1.ClassifyRequest(
        options=solve_options(model, options),
        inputs=to_wire(inputs, _double(options)),
        want=v1.ClassifyWant(labels=True, top_k=top_k, probabilities=probabilities, logits=logits, state=state),
    )


def sample(
    model: str, rows: int, seed: int, first_row: int, log_density: bool, options: Options
) -> v1.SampleRequest:
    return v1.SampleRequest(
        options=solve_options(model, options), rows=rows, seed=seed, first_row=first_row, log_density=log_density
    )


def log_prob(model: str, inputs: Any, options: Options) -> v1.LogProbRequest:
    return v1.LogProbRequest(options=solve_options(model, options), inputs=to_wire(inputs, _double(options)))


def solve(
    model: str,
    inputs: Any,
    state: Any,
    span: tuple[float, float] | None,
    save_at: Sequence[float],
    partial_states: bool,
    direction: str,
    options: Options,
) -> v1.SolveRequest:
    if (inputs is None) == (state is None):
        raise TypeError("solve takes either inputs (x, before the stem) or state (z at the start)")
    request = v1.SolveRequest(
        options=solve_options(model, options),
        save_at=[float(s) for s in save_at],
        partial_states=partial_states,
        direction=direction,
    )
    if state is None:
        request.inputs.CopyFrom(to_wire(inputs, _double(options)))
    else:
        request.state.CopyFrom(to_wire(state, _double(options)))
    if span is not None:
        request.span.CopyFrom(v1.Span(begin=span[0], end=span[1]))
    return request
