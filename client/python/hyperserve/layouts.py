"""From the names and shapes of a public state dict to a model: one function for each layout.

A state dict does not say which activations stand between its tensors, nor where the time goes in: the layout knows.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hyperserve.arrays import Array
from hyperserve.layers import ACTIVATIONS, DenseModule, LayerList, LayoutError

_INDEXED = re.compile(r"(?:(.*)\.)?(\d+)\.(?:_layer\.)?(weight|bias)")


@dataclasses.dataclass(frozen=True)
class Choices:
    """What the caller says of the model; None: what the layout says."""

    activations: Sequence[str] | None = None  # one for all, or one for each
    time: str | None = None  # "first", "last", "none"
    direction: str | None = None
    span: tuple[float, float] = (0.0, 1.0)


@dataclasses.dataclass(frozen=True)
class Imported:
    spec: dict[str, Any]
    tensors: dict[str, Array]


def without_copies(tensors: Mapping[str, Array]) -> dict[str, Array]:
    """Without what torchdyn stores a second time for its adjoint, and without counters."""
    return {
        name: tensor
        for name, tensor in tensors.items()
        if "adjoint" not in name.split(".") and not name.endswith("num_batches_tracked")
    }


def _sequence(tensors: Mapping[str, Array], prefix: str | None = None) -> list[DenseModule]:
    """The modules `<prefix>.<index>`, in order. Every tensor must belong to them."""
    found: dict[int, dict[str, Array]] = {}
    for name, tensor in tensors.items():
        match = _INDEXED.fullmatch(name)
        if match is None or (prefix is not None and (match[1] or "") != prefix):
            raise LayoutError(f"{name}: no name of this layout; it has weights and biases of one nn.Sequential")
        prefix = match[1] or ""
        found.setdefault(int(match[2]), {})[match[3]] = tensor
    modules = []
    for index in sorted(found):
        name = f"{prefix}.{index}".lstrip(".")
        if "weight" not in found[index] or found[index]["weight"].ndim not in (2, 4):
            raise LayoutError(f"{name}: no weight of a linear layer or convolution")
        modules.append(DenseModule(name, found[index]["weight"], found[index].get("bias")))
    if len(modules) < 2:
        raise LayoutError("fewer than two layers with weights")
    return modules


def _spread(activations: Sequence[str], slots: int) -> list[str]:
    unknown = [name for name in activations if name not in ACTIVATIONS]
    if unknown:
        raise LayoutError(f"no activation is called {unknown[0]}; there are {', '.join(ACTIVATIONS)}")
    if len(activations) not in (1, slots):
        raise LayoutError(f"{len(activations)} activations for {slots} places; name one, or one for each place")
    return list(activations) * slots if len(activations) == 1 else list(activations)


def _field(modules: Sequence[DenseModule], activations: Sequence[str], time: str, every: bool) -> LayerList:
    """f: the modules with activations between them. The time joins the first one, or `every` one."""
    field, width = LayerList("field"), modules[-1].width_out
    names = _spread(activations, len(modules) - 1)
    for place, module in enumerate(modules):
        timed = int(time != "none" and (every or place == 0))
        if module.width_in != width + timed:
            words = f"{width} and the time" if timed else f"{width}"
            raise LayoutError(f"{module.name}: {module.width_in} inputs found, {words} wanted")
        if timed:
            field.add_time(time)
        field.add_dense(module)
        width = module.width_out
        if place < len(names):
            field.add(names[place])
    return field


def _flow(field: LayerList, state: int, direction: str, choices: Choices) -> Imported:
    spec = {
        "format": 1,
        "kind": "flow",
        "span": list(choices.span),
        "direction": choices.direction or direction,
        "input": {"shape": [state]},
        "field": field.layers,
    }
    return Imported(spec, field.tensors)


def _flow_of(
    modules: Sequence[DenseModule], activations: Sequence[str], time: str, direction: str, choices: Choices, every: bool
) -> Imported:
    if modules[0].weight.ndim != 2:
        raise LayoutError(f"{modules[0].name}: a convolution; the state of a flow is a vector")
    field = _field(modules, choices.activations or activations, choices.time or time, every)
    return _flow(field, modules[-1].width_out, direction, choices)


def torchcfm(tensors: Mapping[str, Array], choices: Choices) -> Imported:
    """torchcfm.models.MLP: SELU between linear layers, x and then t as inputs if it is time-varying; from noise to data."""
    modules = _sequence(tensors)
    time = "none" if modules[0].width_in == modules[-1].width_out else "last"
    return _flow_of(modules, ["selu"], time, "noise_to_data", choices, every=False)


def torchdiffeq(tensors: Mapping[str, Array], choices: Choices) -> Imported:
    """Nets in the style of torchdiffeq and FFJORD: the time stands first among the inputs of the first layer or, in the
    ConcatLinear layers of FFJORD (`_layer`), of every layer; tanh; from data to noise."""
    every = any("._layer." in name for name in tensors)
    modules = _sequence(tensors)
    time = "none" if modules[0].width_in == modules[-1].width_out and not every else "first"
    return _flow_of(modules, ["tanh"], time, "data_to_noise", choices, every)


def diffeqml_flow(tensors: Mapping[str, Array], choices: Choices) -> Imported:
    """The FFJORD net of DiffEqML's hypersolvers: softplus, and tanh before the last layer; trained from 1 (data) to 0."""
    modules = _sequence(without_copies(tensors))
    softplus_then_tanh = ["softplus"] * (len(modules) - 2) + ["tanh"]
    return _flow_of(modules, softplus_then_tanh, "none", "noise_to_data", choices, every=False)


def diffeqml_classifier(tensors: Mapping[str, Array], choices: Choices) -> Imported:
    """The image classifiers of DiffEqML's hypersolvers: batch norm, a convolution that augments (MNIST) or replaces
    (CIFAR) the image, a convolutional field with softplus, average pooling, a linear layer."""
    tensors = without_copies(tensors)
    fields = {name for name in tensors if ".defunc." in name}
    modules = _sequence({name: tensors[name] for name in fields})
    rest = {name: tensor for name, tensor in tensors.items() if name not in fields}
    augments = "1.augment_func.weight" in rest
    stem, conv = LayerList("stem"), "1.augment_func" if augments else "1"
    for name in ("0.weight", "0.bias", "0.running_mean", "0.running_var", f"{conv}.weight", f"{conv}.bias"):
        if name not in rest:
            raise LayoutError(f"{name}: missing in this layout")
    channels = len(rest["0.weight"])
    stem.add("batch_norm", {name: rest.pop(f"0.{name}") for name in ("weight", "bias", "running_mean", "running_var")},
             channels=channels)  # fmt: skip
    first = DenseModule(conv, rest.pop(f"{conv}.weight"), rest.pop(f"{conv}.bias"))
    if augments:
        inner = LayerList("stem.1.layers")
        inner.add_dense(first)
        stem.tensors.update(inner.tensors)
        stem.add("augment", layers=inner.layers)
    else:
        stem.add_dense(first)
    (last,) = {name.rpartition(".")[0] for name in rest}
    head, linear = LayerList("head"), DenseModule(last, rest[f"{last}.weight"], rest[f"{last}.bias"])
    size = {1: 28, 3: 32}.get(channels)
    cells = linear.width_in // modules[-1].width_out
    side = round(cells**0.5)
    if size is None or side * side * modules[-1].width_out != linear.width_in or size % side:
        raise LayoutError(f"{last}.weight: {linear.width_in} inputs do not fit a square pool of {channels}-channel images")
    head.add("avg_pool", kernel=size // side)
    head.add("flatten")
    head.add_dense(linear)
    field = _field(modules, choices.activations or ["softplus"], "none", every=False)
    mean, deviation = {1: ([0.1307], [0.3081]), 3: ([0.4914, 0.4822, 0.4465], [0.2023, 0.1994, 0.2010])}[channels]
    spec = {
        "format": 1,
        "kind": "classifier",
        "span": list(choices.span),
        "input": {"shape": [channels, size, size], "unit_range": True, "mean": mean, "deviation": deviation},
        "stem": stem.layers,
        "field": field.layers,
        "head": head.layers,
    }
    return Imported(spec, stem.tensors | field.tensors | head.tensors)


LAYOUTS: dict[str, Callable[[Mapping[str, Array], Choices], Imported]] = {
    "torchcfm": torchcfm,
    "torchdiffeq": torchdiffeq,
    "diffeqml_flow": diffeqml_flow,
    "diffeqml_classifier": diffeqml_classifier,
}
