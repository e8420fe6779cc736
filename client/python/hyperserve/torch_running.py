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


def depths_of(s: Any) -> Any:
    """[rows]: the depth of each row in `s` as `beside` makes it."""
    return s if s.dim() == 1 else s[:, 0]


def conditions_of(s: Any) -> Any:
    """[rows, features]; None: there are none."""
    return None if s.dim() == 1 else s[:, 1:]


def beside(depths: Any, conditions: Any) -> Any:
    """What a field sees beside the state, `s` of the functions here: `depths` [rows] or, with `conditions` [rows, features], [rows,
    1 + features]; None: there are no conditions. depths_of and conditions_of take it apart."""
    return depths if conditions is None else torch.cat([depths[:, None], conditions], 1)


def at_depth(depth: float, s: Any) -> Any:
    """`s` with the same conditions and one depth in all rows."""
    return beside(torch.full((len(s),), depth, dtype=torch.float64), conditions_of(s))


def _with_columns(z: Any, columns: Any, first: bool) -> Any:
    """Columns [rows, n] as so many more features or channels of z."""
    columns = columns.reshape(*columns.shape, *[1] * (z.dim() - 2)).expand(-1, -1, *z.shape[2:])
    return torch.cat([columns, z] if first else [z, columns], 1)


def with_depth(z: Any, s: Any, first: bool) -> Any:
    """z with the depth of each row as one more feature or channel."""
    return _with_columns(z, depths_of(s)[:, None], first)


def with_condition(z: Any, s: Any, first: bool) -> Any:
    """z with the condition of each row as more features or channels."""
    return _with_columns(z, conditions_of(s), first)


def _arguments(module: Any) -> int:
    """How many positional ones its forward needs."""
    parameters = inspect.signature(module.forward).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return len([one for one in parameters if one.kind in kinds and one.default is one.empty])


def takes_time(module: Any) -> bool:
    """True for forward(t, x) and forward(t, x, condition)."""
    return _arguments(module) in (2, 3)


def apply(module: Any, z: Any, s: Any) -> Any:
    """The module's own answer, row by row where it sees the time: as an argument or in the DepthCats of torchdyn, which a
    solver tells it before each call (torchdyn.core.defunc.DEFunc)."""
    cats = [one for one in module.modules() if type(one).__name__ == "DepthCat"]
    timed = takes_time(module)
    if not cats and not timed:
        return module(z)
    rows = []
    conditions = conditions_of(s)
    conditional = _arguments(module) == 3 and conditions is not None
    for place, (depth, row) in enumerate(zip(depths_of(s), z.split(1), strict=True)):
        for cat in cats:
            cat.t = depth
        more = (conditions[place : place + 1],) if conditional else ()
        rows.append(module(depth, row, *more) if timed else module(row))
    return torch.cat(rows)


def try_out(module: Any, path: str, z: Any, s: Any) -> None:
    """NotExportable with the module's own words where it fails on the example."""
    try:
        apply(module, z, s)
    except RuntimeError as error:
        raise refuse(path, module, f"it fails on rows of shape {tuple(z.shape[1:])}, as the example has or the part before "
                     f"makes them: {error}. A forward is forward(x), forward(t, x) or forward(t, x, condition)") from error  # fmt: skip


def double(module: Any, path: str, conditional: bool = False) -> Any:
    """A copy to compare with, in eval mode. NotExportable names what computes beside a forward, which no tensor shows."""
    if not isinstance(module, nn.Module):
        raise TypeError(f"{path}: a {type(module).__name__}; a torch.nn.Module is wanted")
    if conditional and _arguments(module) != 3:
        raise refuse(path, module, "a condition is given, and its forward is not forward(t, x, condition)")
    if _arguments(module) > (3 if conditional else 2):
        raise refuse(path, module, "its forward takes more than the time and the state; for forward(t, x, condition) give "
                     "condition=, an example of it")  # fmt: skip
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
    return torch.cat([z, 100 * z, -100 * z]), torch.cat([s, s.flip(0), s.roll(1, 0)])


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


@dataclasses.dataclass(frozen=True)
class Net:
    """Parts one after the other, of which the first sees its argument in the shape `shape`: the time times `scale`, or the
    condition, or [time, condition], or [condition, time]."""

    parts: list[Part]
    shape: tuple[int, ...]
    scale: float
    argument: str = "time"  # "condition", "time_condition", "condition_time"

    @property
    def sees_time(self) -> bool:
        return self.argument != "condition"

    @property
    def sees_condition(self) -> bool:
        return self.argument != "time"

    def first(self, s: Any) -> Any:
        """[rows, features]: what the first part answers to the time [rows]."""
        return torch.stack([self.parts[0][1]((self.scale * depth).reshape(self.shape)).reshape(-1) for depth in s])

    def argument_of(self, s: Any) -> Any:
        """[rows, numbers]: what the first part sees."""
        time, condition = depths_of(s)[:, None], conditions_of(s)
        return {
            "time": lambda: self.scale * time,
            "condition": lambda: condition,
            "time_condition": lambda: torch.cat([time, condition], 1),
            "condition_time": lambda: torch.cat([condition, time], 1),
        }[self.argument]()

    def values(self, s: Any) -> Any:
        """[rows, features]: what the net answers."""
        z = self.first(depths_of(s)) if self.argument == "time" else self.parts[0][1](self.argument_of(s))
        for _, part in self.parts[1:]:
            z = part(z)
        return z


@dataclasses.dataclass(frozen=True)
class Calls:
    """The parts that a forward calls, in order: those that see z, and the nets of those that do not."""

    parts: list[Part]
    nets: list[Net]


def calls_of(module: Any, z: Any, s: Any) -> Calls:
    """Nets begin with parts whose argument is a multiple of the time, the condition, or both side by side."""
    condition = conditions_of(s)
    row, given = z[:1], None if condition is None else condition[:1]
    other = None if given is None else 2 * given + 1
    runs = [_calls(module, *one) for one in (
        (row, 1.0, given), (row, 0.5, given), (2 * row + 1, 1.0, given), (row, 1.0, other))]  # fmt: skip
    if len({len(run) for run in runs}) != 1:
        return Calls([], [])
    parts: list[Part] = []
    nets: dict[str, Net] = {}
    for (name, part, seen), *others in zip(*runs, strict=True):
        if not isinstance(seen, torch.Tensor):
            parts.append((name, part))
            continue
        at_half, of_row, of_other = (not torch.equal(seen, one) for _, _, one in others)
        if of_row or not (at_half or of_other):
            parts.append((name, part))
            continue
        argument = "both" if at_half and of_other else "time" if at_half else "condition"
        if argument not in nets:
            net = _begun(argument, seen, others[0][2], given)
            if net is None:
                return Calls([], [])  # it sees a function of the time or of the condition that no part computes
            nets[argument] = net
        nets[argument].parts.extend(_leaves(name, part))
    return Calls(parts, list(nets.values()))


def _begun(argument: str, seen: Any, at_half: Any, condition: Any) -> Net | None:
    """A net without its parts; None: its first argument, `seen` at the time 1, is not what a net begins with."""
    if argument == "time":
        plain = seen.numel() == 1 and torch.equal(2 * at_half, seen)
        return Net([], tuple(seen.shape), float(seen.reshape(-1)[0])) if plain else None
    one = torch.ones(1, 1, dtype=torch.float64)
    for name, wanted in {"condition": condition, "time_condition": torch.cat([one, condition], 1),
                         "condition_time": torch.cat([condition, one], 1)}.items():  # fmt: skip
        if torch.equal(seen.reshape(1, -1), wanted):
            return Net([], tuple(seen.shape), 1.0, name)
    return None


def _leaves(name: str, part: Any) -> list[Part]:
    """The parts of a plain sequence, or the part itself."""
    if type(part) is not nn.Sequential:
        return [(name, part)]
    return [leaf for key, child in part.named_children() for leaf in _leaves(f"{name}.{key}", child)]


def _calls(module: Any, row: Any, depth: float, condition: Any) -> list[tuple[str, Any, Any]]:
    """Each call of a part within one of the module: the part and its last argument."""
    found: list[tuple[str, Any, Any]] = []
    hooks = []
    for name, part in parts_of(module):

        def record(called: Any, arguments: Any, name: str = name) -> None:
            found.append((name, called, arguments[-1] if arguments else None))

        hooks.append(part.register_forward_pre_hook(record))
    try:
        apply(module, row, beside(torch.tensor([depth], dtype=torch.float64), condition))
    finally:
        for hook in hooks:
            hook.remove()
    return found


def frequencies(net: Net) -> tuple[Array, Array] | None:
    """Of a first part whose features are cosines and sines of multiples of the time: the multiples w [features / 2], and the
    matrix that maps [cos(w s), sin(w s)] to its features in their order. None: it is no such part."""

    def features(depth: float) -> Array:
        found: Array = net.first(torch.tensor([depth], dtype=torch.float64))[0].numpy()
        return found

    if net.argument != "time" or isinstance(net.parts[0][1], nn.Linear):
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
