"""From the names and shapes of a public state dict to a model: one function for each layout.

A state dict does not say which activations stand between its tensors, nor where the time goes in: the layout knows.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hyperserve.arrays import Array
from hyperserve.layers import ACTIVATIONS, DenseModule, LayerList, LayoutError

# net.0.weight of an nn.Sequential, fc1.weight, and layers.0._layer.weight of FFJORD
_INDEXED = re.compile(r"((?:.*\.)?[A-Za-z_]*)(\d+)\.(?:_layer\.)?(weight|bias)")


@dataclasses.dataclass(frozen=True)
class Choices:
    """What the caller says of the model; None: what the layout says."""

    activations: Sequence[str] | None = None  # one for all, or one for each
    time: str | None = None  # "first", "last", "none"
    direction: str | None = None
    span: tuple[float, float] | None = None


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
    """The modules `<prefix><index>`, in order. Every tensor must belong to them."""
    found: dict[int, dict[str, Array]] = {}
    for name, tensor in tensors.items():
        match = _INDEXED.fullmatch(name)
        if match is None or (prefix is not None and match[1] != prefix):
            raise LayoutError(f"{name}: no name of this layout; it has weights and biases of one nn.Sequential")
        prefix = match[1]
        if match[3] in found.setdefault(int(match[2]), {}):
            raise LayoutError(f"{name}: the second {match[3]} of layer {int(match[2])}")
        found[int(match[2])][match[3]] = tensor
    modules = []
    for index in sorted(found):
        name = f"{prefix}{index}"
        if "weight" not in found[index]:
            raise LayoutError(f"{name}: a bias without a weight")
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


def _flow(field: LayerList, state: int, direction: str, choices: Choices, span: tuple[float, float]) -> Imported:
    spec = {
        "format": 1,
        "kind": "flow",
        "span": list(choices.span or span),
        "direction": choices.direction or direction,
        "input": {"shape": [state]},
        "field": field.layers,
    }
    return Imported(spec, field.tensors)


def _flow_of(
    modules: Sequence[DenseModule],
    activations: Sequence[str],
    time: str,
    direction: str,
    choices: Choices,
    *,
    every: bool = False,
    span: tuple[float, float] = (0.0, 1.0),
) -> Imported:
    if modules[0].weight.ndim != 2:
        raise LayoutError(f"{modules[0].name}: a convolution; the state of a flow is a vector")
    field = _field(modules, choices.activations or activations, choices.time or time, every)
    return _flow(field, modules[-1].width_out, direction, choices, span)


def torchcfm(tensors: Mapping[str, Array], choices: Choices) -> Imported:
    """torchcfm.models.MLP: SELU between linear layers, x and then t as inputs if it is time-varying; from noise to data."""
    modules = _sequence(tensors)
    if modules[-1].width_out == 1 and modules[0].width_in > 2:
        raise LayoutError(f"{modules[-1].name}: one output; a potential, whose gradient is the field, has no layers here")
    time = "none" if modules[0].width_in == modules[-1].width_out else "last"
    return _flow_of(modules, ["selu"], time, "noise_to_data", choices)


def torchdiffeq(tensors: Mapping[str, Array], choices: Choices) -> Imported:
    """Nets in the style of torchdiffeq and FFJORD: the time stands first among the inputs of the first layer or, in the
    ConcatLinear layers of FFJORD (ffjord, lib/layers/diffeq_layers/basic.py), of every layer; tanh; from data to noise.

    FFJORD's blocks keep the root of the span's length beside the field. Its ConcatLinear_v2 adds a multiple of the time to
    the answer of a linear layer, which is the same as the time as an input.
    """
    rest = {name: tensor for name, tensor in tensors.items() if not name.endswith("_num_evals")}
    roots = [rest.pop(name) for name in list(rest) if name.rpartition(".")[2] == "sqrt_end_time"]
    if len(roots) > 1 or any(root.size != 1 for root in roots):
        raise LayoutError(f"{len(roots)} lengths of spans (sqrt_end_time); a model has one field and one span")
    span = (0.0, float(roots[0].reshape(())) ** 2) if roots else (0.0, 1.0)
    squashed = [name for name in rest if "._hyper_gate." in name]
    if squashed:
        raise LayoutError(f"{squashed[0]}: of a concat-squash layer, which the format does not have yet")
    for name in [name for name in rest if name.endswith("._hyper_bias.weight")]:
        layer = name.removesuffix("._hyper_bias.weight")
        weight, rate = rest.get(f"{layer}._layer.weight"), rest.pop(name)
        if weight is None or rate.shape != (len(weight), 1) or weight.ndim != 2:
            raise LayoutError(f"{name}: a tensor of shape {rate.shape} that fits no layer beside it")
        rest[f"{layer}._layer.weight"] = np.concatenate([rate, weight], 1)
    every = any("._layer." in name for name in rest) and choices.time != "none"
    modules = _sequence(rest)
    time = "none" if modules[0].width_in == modules[-1].width_out else "first"
    return _flow_of(modules, ["tanh"], time, "data_to_noise", choices, every=every, span=span)


def diffeqml_flow(tensors: Mapping[str, Array], choices: Choices) -> Imported:
    """The FFJORD net of DiffEqML's hypersolvers (diffeqml-research, hypersolver/density_estimation): softplus, and tanh
    before the last layer; trained from 1 (data) to 0."""
    modules = _sequence(without_copies(tensors))
    softplus_then_tanh = ["softplus"] * (len(modules) - 2) + ["tanh"]
    return _flow_of(modules, softplus_then_tanh, "none", "noise_to_data", choices)


_IMAGES = {  # by channels: size, mean and deviation of MNIST and CIFAR
    1: (28, [0.1307], [0.3081]),
    3: (32, [0.4914, 0.4822, 0.4465], [0.2023, 0.1994, 0.2010]),
}


def diffeqml_classifier(tensors: Mapping[str, Array], choices: Choices) -> Imported:
    """The image classifiers of DiffEqML's hypersolvers (diffeqml-research, hypersolver/image_classification): batch norm, a
    convolution that augments (MNIST) or replaces (CIFAR) the image, a convolutional field with softplus, average pooling to
    1x1 or 2x2, a linear layer."""
    rest = without_copies(tensors)
    modules = _sequence({name: rest.pop(name) for name in list(rest) if ".defunc." in name})

    def dense(name: str) -> DenseModule:
        if f"{name}.weight" not in rest:
            raise LayoutError(f"{name}.weight: missing in this layout")
        return DenseModule(name, rest.pop(f"{name}.weight"), rest.pop(f"{name}.bias", None))

    norm = {name: rest.pop(f"0.{name}", None) for name in ("weight", "bias", "running_mean", "running_var")}
    channels = 0 if norm["weight"] is None or norm["weight"].ndim != 1 else len(norm["weight"])
    if channels not in _IMAGES or any(one is None or one.shape != (channels,) for one in norm.values()):
        raise LayoutError(f"0: no batch norm of {' or '.join(map(str, _IMAGES))} channels")
    size, mean, deviation = _IMAGES[channels]
    stem, head = LayerList("stem"), LayerList("head")
    stem.add("batch_norm", {name: tensor for name, tensor in norm.items() if tensor is not None}, channels=channels)
    if "1.augment_func.weight" in rest:
        inner = LayerList("stem.1.layers")
        inner.add_dense(dense("1.augment_func"))
        stem.tensors.update(inner.tensors)
        stem.add("augment", layers=inner.layers)
    else:
        stem.add_dense(dense("1"))
    linear, state = dense(max(rest, default="").rpartition(".")[0]), modules[-1].width_out
    if rest:
        raise LayoutError(f"{min(rest)}: no name of this layout")
    side = round((linear.width_in // state) ** 0.5)
    if side * side * state != linear.width_in or size % max(side, 1):
        raise LayoutError(f"{linear.name}: {linear.width_in} inputs do not fit a square pool of {state} channels")
    head.add("avg_pool", kernel=size // side)
    head.add("flatten")
    head.add_dense(linear)
    field = _field(modules, choices.activations or ["softplus"], "none", every=False)
    spec = {
        "format": 1,
        "kind": "classifier",
        "span": list(choices.span or (0.0, 1.0)),
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
