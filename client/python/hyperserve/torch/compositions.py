"""The compositions of a module's children that are tried in the place of its forward. Needs torch."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from hyperserve.layers import ACTIVATIONS
from hyperserve.torch_running import Calls, Net, Part, calls_of, conditions_of

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    name: getattr(nn.functional, name, None) or getattr(torch, name) for name in ACTIVATIONS
}
KINDS = ("add", "film", "cat", "cat_first")  # what a net of the time or of the condition does to what stands before it


class Column(nn.Module):  # type: ignore[misc]
    """Stands for the time or the condition as an input of what follows, before ("first") or after ("last") the others."""

    def __init__(self, of: str, place: str) -> None:
        super().__init__()
        self.of, self.place = of, place


def _time(place: str) -> Part:
    return "t", Column("time", place)


def _condition(place: str) -> Part:
    return "c", Column("condition", place)


class Function(nn.Module):  # type: ignore[misc]
    """Stands for an activation that a forward calls as a function."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, x: Any) -> Any:
        return FUNCTIONS[self.name](x)


class ByNet(nn.Module):  # type: ignore[misc]
    """Stands for what a net of the time, of the condition or of both does to what stands before it."""

    def __init__(self, kind: str, net: Net) -> None:
        super().__init__()
        self.kind, self.net = kind, net


class Within(nn.Module):  # type: ignore[misc]
    """Stands for a layer of the format that holds others: residual, skip or augment."""

    def __init__(self, kind: str, inside: nn.Module) -> None:
        super().__init__()
        self.kind, self.inside = kind, inside


class Steps(nn.Module):  # type: ignore[misc]
    """Parts of a module, one after the other."""

    def __init__(self, parts: list[Part]) -> None:
        super().__init__()
        self.parts = parts


def _between(parts: list[Part], activation: str | None) -> list[Part]:
    steps = parts[:1]
    for part in parts[1:]:
        steps += [part] if activation is None else [(activation, Function(activation)), part]
    return steps


def _beside(steps: list[Part], conditional: bool) -> Iterator[list[Part]]:
    """The steps, with the time and the condition as inputs of the first one, in every order; with the time as one of every layer."""
    times: list[list[Part]] = [[], [_time("last")], [_time("first")]]
    for time in times:
        yield [*time, *steps]
        for place in ("last", "first") if conditional else ():
            condition: list[Part] = [_condition(place)]
            yield [*time, *condition, *steps]
            if time:
                yield [*condition, *time, *steps]
    layers = [isinstance(part, (nn.Linear, nn.Conv2d)) for _, part in steps]
    if sum(layers) > 1 and not conditional:
        for place in ("last", "first"):  # of every layer, as FFJORD's ConcatLinear
            column: list[Part] = [_time(place)]
            yield [one for step, takes in zip(steps, layers, strict=True) for one in (*(column if takes else []), step)]


def _acted_on(steps: list[Part], nets: list[Net], conditional: bool) -> Iterator[list[Part]]:
    """The steps with each of the nets somewhere among them, and what no net sees as an input of the first one."""
    for at in range(len(steps) + 1):
        for kinds in itertools.product(KINDS, repeat=len(nets)):
            acting: list[Part] = [("net", ByNet(kind, net)) for kind, net in zip(kinds, nets, strict=True)]
            chosen = [*steps[:at], *acting, *steps[at:]]
            if conditional and not any(net.sees_condition for net in nets):
                yield from ([_condition(place), *chosen] for place in ("last", "first"))
            elif conditional and not any(net.sees_time for net in nets):
                yield from (chosen, *([_time(place), *chosen] for place in ("last", "first")))
            else:
                yield chosen


def _nets(calls: Calls, activation: str | None) -> list[Net]:
    return [Net(_between(net.parts, activation), net.shape, net.scale, net.argument) for net in calls.nets]


def compositions(module: Any, z: Any, s: Any) -> Iterator[tuple[Steps, str]]:
    """What is tried: parts in a sequence, and the kind of layer that brings their input to what they give, or "". The simplest
    first."""
    calls, conditional = calls_of(module, z, s), conditions_of(s) is not None
    for activation, of_nets in _activations(len(calls.parts) > 1, any(len(net.parts) > 1 for net in calls.nets)):
        steps, nets = _between(calls.parts, activation), _nets(calls, of_nets)
        choices = _acted_on(steps, nets, conditional) if nets else _beside(steps, conditional)
        for chosen, kind in itertools.product(choices if calls.parts else [], ("", "residual", "skip", "augment")):
            yield Steps(chosen), kind
    if not calls.nets and not conditional:
        yield from ((steps, "") for steps in _acting_on_residuals(calls.parts))


def _acting_on_residuals(parts: list[Part]) -> Iterator[Steps]:
    """An activation of the sum of the input and what the parts make of it, as in a ResNet; a function, or the last of the parts."""
    if len(parts) > 1:
        yield Steps([("residual", Within("residual", Steps(parts[:-1]))), parts[-1]])
    for activation in ACTIVATIONS if parts else ():
        for between in (activation, None):
            inside = Steps(_between(parts, between))
            yield Steps([("residual", Within("residual", inside)), (activation, Function(activation))])


def _activations(of_steps: bool, of_nets: bool) -> Iterator[tuple[str | None, str | None]]:
    """Between the parts, and between those of the nets, where there is a place: one of them, or the same in both."""
    yield None, None
    for activation in ACTIVATIONS:
        if of_steps and of_nets:
            yield activation, activation
        if of_steps:
            yield activation, None
        if of_nets:
            yield None, activation
