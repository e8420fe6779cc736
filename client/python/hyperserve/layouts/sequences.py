"""The layers of a net in their order, from the names of a state dict: those of checkpoints, prefixed, numbered and named."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence

from hyperserve.arrays import Array
from hyperserve.layers import DenseModule, LayoutError

_TENSOR = re.compile(r"(.+?)(?:\._layer)?\.(weight|bias)")  # FFJORD's layers keep theirs in a _layer
_OPTIMIZER = re.compile(r"(?:.*\.)?state\.\d+\..*")  # of parameter number so and so, as exp_avg
_NUMBERED = re.compile(r"(.*?)((?:\.?\d+)+)")
ORDERED_MAX = 8  # layers that are put in order by their widths


def net_of(tensors: Mapping[str, Array], part: str | None) -> dict[str, Array]:
    """A checkpoint without the state of its optimizers; of `part` alone, without its name, where the caller names one."""
    found = {name: tensor for name, tensor in tensors.items() if _OPTIMIZER.fullmatch(name) is None}
    if part is None:
        return found
    inside = {name.removeprefix(f"{part}."): tensor for name, tensor in found.items() if name.startswith(f"{part}.")}
    if not inside:
        firsts = dict.fromkeys(name.partition(".")[0] for name in found)
        raise LayoutError(f"it has no part {part}; there are {', '.join(firsts) or 'none'}")
    return inside


def copies(tensors: Mapping[str, Array]) -> list[str]:
    """The parts of a checkpoint that hold one net each, as that of the training and its average."""
    parts: dict[str, set[str]] = {}
    for name in tensors:
        first, _, rest = name.partition(".")
        parts.setdefault(first, set()).add(rest)
    alike = [first for first, rest in parts.items() if len(rest) > 2 and list(parts.values()).count(rest) > 1]
    return alike


def sequence(tensors: Mapping[str, Array], condition: int = 0) -> list[DenseModule]:
    """The linear layers and convolutions of a net, in their order. Every tensor must belong to them.

    Names that differ in numbers are ordered by these (net.0, blocks.1.linear, fc2); other names of one parent (fc_in, fc_out)
    stand in the order of the file, or in the only one in which their widths fit; the first takes so many features of a
    condition. A file whose names are sorted tells no order, since safetensors are written so.
    """
    found: dict[str, dict[str, Array]] = {}
    for name, tensor in tensors.items():
        match = _TENSOR.fullmatch(name)
        if match is None:
            raise _foreign(name)
        if match[2] in found.setdefault(match[1], {}):
            raise LayoutError(f"{name}: the second {match[2]} of {match[1]}")
        found[match[1]][match[2]] = tensor
    modules = []
    for name, parts in found.items():
        if "weight" not in parts:
            raise LayoutError(f"{name}: a bias without a weight")
        modules.append(DenseModule(name, parts["weight"], parts.get("bias")))
    if len(modules) < 2:
        raise LayoutError("fewer than two layers with weights")
    return _in_order(modules, condition)


def _foreign(name: str) -> LayoutError:
    return LayoutError(f"{name}: no name of this layout; it has weights and biases of one nn.Sequential")


def _pattern(name: str) -> tuple[str, ...]:
    return tuple(re.split(r"\d+", name))


def _numbers(name: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", name)]


def _in_order(modules: Sequence[DenseModule], condition: int) -> list[DenseModule]:
    names = [module.name for module in modules]
    if len({_pattern(name) for name in names}) == 1:
        return sorted(modules, key=lambda module: _numbers(module.name))
    ends = [_NUMBERED.fullmatch(name) for name in names]
    if all(ends) and len({end[1] for end in ends if end}) == 1:  # layers.0.0, layers.1.0, layers.2
        prefix = ends[0][1] if ends[0] else ""
        return sorted(modules, key=lambda module: _numbers(module.name.removeprefix(prefix)))
    parents = [name.rpartition(".")[0] for name in names]
    for name, parent in zip(names, parents, strict=True):
        if parent != parents[0]:
            raise _foreign(f"{name}.weight")
    return _by_widths(modules, condition)


def _by_widths(modules: Sequence[DenseModule], condition: int) -> list[DenseModule]:
    names = [f"{module.name}." for module in modules]  # as they stand before "weight"
    if names != sorted(names) and _fits(modules, condition):
        return list(modules)
    if len(modules) > ORDERED_MAX:
        raise LayoutError(f"{modules[0].name}: layers of such names, more than {ORDERED_MAX}, have no order")
    orders = [list(order) for order in itertools.permutations(modules) if _fits(order, condition) and _counts_up(order)]
    if len(orders) == 1:
        return orders[0]
    words = ("the widths of the layers fit in no order" if not orders else
             "the widths of the layers fit in several orders, of which neither the file nor numbers in these names tell one")  # fmt: skip
    raise LayoutError(f"{', '.join(module.name for module in modules)}: {words}")


def _fits(modules: Sequence[DenseModule], condition: int) -> bool:
    """Whether each takes what the one before it answers, or that and the time, which the first one takes if any does."""
    widths = [modules[-1].width_out + condition, *(module.width_out for module in modules)]
    more = [module.width_in - width for module, width in zip(modules, widths, strict=False)]
    return set(more) <= {0, 1} and more[0] == max(more)


def _counts_up(modules: Sequence[DenseModule]) -> bool:
    """Whether names that differ in numbers only stand in the order of these."""
    last: dict[tuple[str, ...], list[int]] = {}
    for module in modules:
        pattern, numbers = _pattern(module.name), _numbers(module.name)
        if numbers < last.get(pattern, numbers):
            return False
        last[pattern] = numbers
    return True
