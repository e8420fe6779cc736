"""Runs modules of torch at depths, and compares what they answer. Needs torch."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import math
from typing import Any

import numpy as np
import torch
from torch import nn

from hyperserve.arrays import Array
from hyperserve.layers import LayoutError

Part = tuple[str, Any]  # of a module: its name there and itself

AGREEMENT = 1e-7  # relative; torch's softplus has a threshold that costs 2e-9


class NotExportable(LayoutError):
    """A module that the format cannot hold. The message names it, its class and the reason."""


def refuse(path: str, module: Any, reason: str) -> NotExportable:
    return NotExportable(f"{path} ({type(module).__name__}): {reason}")


def with_depth(z: Any, s: Any, first: bool) -> Any:
    """z with the depth of each row as one more feature or channel."""
    column = s.reshape(-1, *[1] * (z.dim() - 1)).expand(-1, 1, *z.shape[2:])
    return torch.cat([column, z] if first else [z, column], 1)


def _arguments(module: Any) -> int:
    """How many positional ones its forward needs."""
    parameters = inspect.signature(module.forward).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return len([one for one in parameters if one.kind in kinds and one.default is one.empty])


def takes_time(module: Any) -> bool:
    """True for forward(t, x)."""
    return _arguments(module) == 2


def apply(module: Any, z: Any, s: Any) -> Any:
    """The module's own answer, row by row where it sees the time: as an argument or in the DepthCats of torchdyn, which a
    solver tells it before each call (torchdyn.core.defunc.DEFunc)."""
    cats = [one for one in module.modules() if type(one).__name__ == "DepthCat"]
    timed = takes_time(module)
    if not cats and not timed:
        return module(z)
    rows = []
    for depth, row in zip(s, z.split(1), strict=True):
        for cat in cats:
            cat.t = depth
        rows.append(module(depth, row) if timed else module(row))
    return torch.cat(rows)


def double(module: Any, path: str) -> Any:
    """A copy to compare with, in eval mode. NotExportable names what computes beside a forward, which no tensor shows."""
    if not isinstance(module, nn.Module):
        raise TypeError(f"{path}: a {type(module).__name__}; a torch.nn.Module is wanted")
    if _arguments(module) > 2:
        raise refuse(path, module, "its forward takes more than the time and the state, as a condition; a conditional field is not "
                     "written from modules yet: write its model.json with condition_cat or condition_film")  # fmt: skip
    found = [(".".join(filter(None, (path, name))), part, _hidden(part)) for name, part in module.named_modules()]
    refused = [str(refuse(name, part, reason)) for name, part, reason in found if reason]
    if refused:
        raise NotExportable("\n".join(refused))
    # What a forward leaves behind cannot be copied by torch, since it is a step of a gradient.
    left = [one for part in module.modules() for one in vars(part).values() if isinstance(one, torch.Tensor) and not one.is_leaf]
    return copy.deepcopy(module, {id(one): one.detach().clone() for one in left}).cpu().double().eval()


def example_rows(example: Any) -> Any:
    """Eight rows of an example [rows, ...], in float64, repeated if it has fewer: each is taken at another depth."""
    rows = torch.as_tensor(example).detach().cpu().double()
    if rows.dim() < 2 or len(rows) == 0:
        raise ValueError(f"an example of shape {tuple(rows.shape)}; rows of inputs wanted")
    return rows[torch.arange(8) % len(rows)]


def far(z: Any, s: Any) -> tuple[Any, Any]:
    """z, 100 z and -100 z, each at other depths: two functions that agree on an example rarely agree there."""
    return torch.cat([z, 100 * z, -100 * z]), torch.cat([s, s.flip(0), s.roll(1)])


def difference(found: Any, wanted: Any, rows: int, floor: float = 0.0) -> float:
    """The largest difference within `rows` rows, relative to their largest answer, or to `floor` if that is larger. Infinite
    where only one is finite."""
    if found.shape != wanted.shape or bool((torch.isfinite(found) != torch.isfinite(wanted)).any()):
        return math.inf
    largest = 0.0
    for one, other in zip(found.split(rows), wanted.split(rows), strict=True):
        finite = torch.isfinite(other)
        error = float((one - other)[finite].abs().max()) if bool(finite.any()) else 0.0
        if error > 0:
            largest = max(largest, error / max(float(other[finite].abs().max()), floor, 1e-300))
    return largest


def _hidden(module: Any) -> str:
    """What computes beside the module's forward; empty: nothing."""
    if hasattr(module, "parametrizations"):
        names = [f"{type(one).__name__.lstrip('_')} of {name}" for name, list_ in module.parametrizations.items() for one in list_]
        return (f"it is parametrized ({', '.join(names)}); torch.nn.utils.parametrize.remove_parametrizations(module, name) "
                "keeps its answers")  # fmt: skip
    hooks = (*module._forward_pre_hooks.values(), *module._forward_hooks.values())
    names = [getattr(hook, "__name__", type(hook).__name__) for hook in hooks]
    if names:
        return f"its forward has hooks ({', '.join(names)}); remove them (torch.nn.utils.remove_weight_norm, remove_spectral_norm)"
    return ""


def parts_of(module: Any) -> list[Part]:
    """Its children by name, with those of its lists."""
    found: list[Part] = []
    for name, child in module.named_children():
        found += [(f"{name}.{key}", one) for key, one in parts_of(child)] if isinstance(child, nn.ModuleList) else [(name, child)]
    return found


def calls_of(module: Any, z: Any) -> tuple[list[Part], list[Part], tuple[tuple[int, ...], float]]:
    """The parts that a forward calls, in order: those that see z, those that see the time only, and of the first of the
    latter the shape of its argument and what the time is multiplied by there."""
    half, whole, other = (_calls(module, row, depth) for row, depth in ((z[:1], 0.5), (z[:1], 1.0), (2 * z[:1] + 1, 1.0)))
    parts: list[Part] = []
    net: list[Part] = []
    if not len(half) == len(whole) == len(other):
        return [], [], ((), 1.0)
    argument: tuple[tuple[int, ...], float] = ((), 1.0)
    for (name, part, at_half), (_, _, at_whole), (_, _, of_other) in zip(half, whole, other, strict=True):
        if not isinstance(at_whole, torch.Tensor) or not torch.equal(at_whole, of_other) or torch.equal(at_half, at_whole):
            parts.append((name, part))
            continue
        if not net:
            if at_whole.numel() != 1 or not torch.equal(2 * at_half, at_whole):
                return [], [], argument  # it sees a function of the time that no part computes
            argument = (tuple(at_whole.shape), float(at_whole))
        net += _leaves(name, part)
    return parts, net, argument


def _leaves(name: str, part: Any) -> list[Part]:
    """The parts of a plain sequence, or the part itself."""
    if type(part) is not nn.Sequential:
        return [(name, part)]
    return [leaf for key, child in part.named_children() for leaf in _leaves(f"{name}.{key}", child)]


def _calls(module: Any, row: Any, depth: float) -> list[tuple[str, Any, Any]]:
    """Each call of a part within one of the module: the part and its last argument."""
    found: list[tuple[str, Any, Any]] = []
    hooks = []
    for name, part in parts_of(module):

        def record(called: Any, arguments: Any, name: str = name) -> None:
            found.append((name, called, arguments[-1] if arguments else None))

        hooks.append(part.register_forward_pre_hook(record))
    try:
        apply(module, row, torch.tensor([depth], dtype=torch.float64))
    finally:
        for hook in hooks:
            hook.remove()
    return found


@dataclasses.dataclass(frozen=True)
class TimeNet:
    """Parts one after the other, of which the first sees scale times the time, in the shape `shape`."""

    parts: list[Part]
    shape: tuple[int, ...]
    scale: float

    def first(self, s: Any) -> Any:
        """[rows, features]: what the first part answers at depths s [rows]."""
        return torch.stack([self.parts[0][1]((self.scale * depth).reshape(self.shape)).reshape(-1) for depth in s])

    def values(self, s: Any) -> Any:
        """[rows, features]: what the net answers."""
        z = self.first(s)
        for _, part in self.parts[1:]:
            z = part(z)
        return z


def frequencies(net: TimeNet) -> tuple[Array, Array] | None:
    """Of a first part whose features are cosines and sines of multiples of the time: the multiples w [features / 2], and the
    matrix that maps [cos(w s), sin(w s)] to its features in their order. None: it is no such part."""

    def features(depth: float) -> Array:
        found: Array = net.first(torch.tensor([depth], dtype=torch.float64))[0].numpy()
        return found

    if isinstance(net.parts[0][1], nn.Linear):
        return None
    zero, small = features(0.0), 1e-6
    cosines, sines = np.flatnonzero(zero == 1), np.flatnonzero(zero == 0)
    if len(cosines) != len(sines) or 2 * len(cosines) != len(zero) or not len(zero):
        return None
    near = features(small)
    found = np.arctan2(near[sines], near[cosines]) / small
    order = np.eye(len(zero))[np.argsort(np.concatenate([cosines, sines]))]
    for depth in (0.3, 0.77, 1.0):
        waves = np.concatenate([np.cos(found * depth), np.sin(found * depth)])
        if not np.abs(order @ waves - features(depth)).max() < 1e-6:
            return None
    return found, order
