"""Solves and densities of a daemon as functions of torch's autograd, and fields of torch as code of a model. Needs torch.

    z = hyperserve.torch.solve(client, "rings", z0, plan="rk4:4")
    z.square().sum().backward()  # fills z0.grad by one more call, SolveVjp

The derivatives are those of the steps that the plan takes, so plans are fixed or learned ones. First derivatives only.
Tensors may live on any device; a plan in tier double computes in float64. Rows that fail hold NaN. With `knots` the condition is
a control signal, and its gradient that by its values at the knots. The weights of `guidance` are constants.
"""

from __future__ import annotations

from typing import Any, Unpack

import torch

from hyperserve.client import Client
from hyperserve.requests import Options
from hyperserve.torch.packages import export_package as export_package


def solve(
    client: Client,
    model: str,
    state: torch.Tensor,
    *,
    span: tuple[float, float] | None = None,
    direction: str = "",
    **options: Unpack[Options],
) -> torch.Tensor:
    """z at the end from `state` [rows, state shape], as Client.solve; with gradients for state and condition.

    Works in reverse mode (backward, grad) and in forward mode (torch.autograd.forward_ad).
    """
    condition, rest = _split(options)
    end: torch.Tensor = _Solve.apply(client, model, {"span": span, "direction": direction, **rest}, state, condition)
    return end


def log_prob(client: Client, model: str, inputs: torch.Tensor, **options: Unpack[Options]) -> torch.Tensor:
    """log p(x) of points [rows, dimensions], float64 [rows], as Client.log_prob; with gradients for points and condition.

    Where a gradient is wanted the one call brings it along.
    """
    condition, rest = _split(options)
    value: torch.Tensor = _LogProb.apply(client, model, rest, inputs, condition)
    return value


class _Solve(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    @staticmethod
    def forward(client: Client, model: str, arguments: Any, state: torch.Tensor, condition: torch.Tensor | None) -> torch.Tensor:
        result = client.solve(model, state=state, **_conditioned(arguments, condition))
        return _like(result.state, state)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: torch.Tensor) -> None:
        ctx.client, ctx.model, ctx.arguments, state, condition = inputs
        kept = (state,) if condition is None else (state, condition)
        ctx.save_for_backward(*kept)
        ctx.save_for_forward(*kept)

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator, unused-ignore]
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        state, condition = _kept(ctx)
        arguments = _conditioned(ctx.arguments, condition)
        result = ctx.client.solve_vjp(ctx.model, state=state, cotangent=cotangent, **arguments)
        return None, None, None, _like(result.start_gradient, state), _of_condition(result.condition_gradient, condition)

    @staticmethod
    def jvp(
        ctx: Any, client: None, model: None, arguments: None, tangent: torch.Tensor | None, of_condition: torch.Tensor | None
    ) -> torch.Tensor:
        state, condition = _kept(ctx)
        result = ctx.client.solve_jvp(
            ctx.model, state=state, tangent=tangent, condition_tangent=of_condition, **_conditioned(ctx.arguments, condition)
        )
        return _like(result.state_tangent, state)


class _LogProb(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    @staticmethod
    def forward(
        ctx: Any, client: Client, model: str, options: Any, inputs: torch.Tensor, condition: torch.Tensor | None
    ) -> torch.Tensor:
        arguments = _conditioned(options, condition)
        if not any(ctx.needs_input_grad):
            return torch.from_numpy(client.log_prob(model, inputs, **arguments).log_prob).to(inputs.device)
        result = client.log_prob_gradient(model, inputs, **arguments)
        of_condition = result.condition_gradient
        gradients = [_like(result.gradient, inputs)]
        if condition is not None and of_condition is not None:
            gradients += [_like(of_condition, condition), condition]
        ctx.save_for_backward(*gradients)
        return torch.from_numpy(result.log_prob).to(inputs.device)

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator, unused-ignore]
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        of_inputs, *rest = ctx.saved_tensors
        of_condition = _summed(_weighted(rest[0], cotangent), rest[1]) if rest else None
        return None, None, None, _weighted(of_inputs, cotangent), of_condition


def _split(options: Options) -> tuple[Any, dict[str, Any]]:
    """A condition that is a tensor, which autograd must see as an argument, and the other options."""
    guidance = options.get("guidance")
    if isinstance(guidance, torch.Tensor) and guidance.requires_grad:
        raise TypeError("guidance: there is no gradient for its weights; detach them")
    condition = options.get("condition")
    if not isinstance(condition, torch.Tensor):
        return None, dict(options)
    return condition, {name: value for name, value in options.items() if name != "condition"}


def _conditioned(arguments: Any, condition: torch.Tensor | None) -> Any:
    return arguments if condition is None else {**arguments, "condition": condition}


def _kept(ctx: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
    state, *condition = ctx.saved_tensors
    return state, condition[0] if condition else None


def _like(array: Any, tensor: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(array).to(tensor)


def _weighted(gradient: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """A gradient [rows, ...] times one weight for each row, [rows]."""
    return gradient * weights.reshape(-1, *[1] * (gradient.dim() - 1)).to(gradient)


def _of_condition(gradient: Any, condition: torch.Tensor | None) -> torch.Tensor | None:
    return None if condition is None or gradient is None else _summed(_like(gradient, condition), condition)


def _summed(of_rows: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
    """The gradient of a condition of all rows is the sum of those of its rows."""
    return of_rows if of_rows.shape == condition.shape else of_rows.sum(0).reshape(condition.shape)
