"""From the names and shapes of a public state dict to a model: one function for each layout.

A state dict does not say which activations stand between its tensors, nor where the time goes in: the layout knows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hyperserve.arrays import Array
from hyperserve.layers import ACTIVATIONS, DenseModule, LayerList, LayoutError
from hyperserve.layouts.sequences import sequence

@dataclasses.dataclass(frozen=True)
class Choices:
    """What the caller says of the model; None: what the layout says."""

    activations: Sequence[str] | None = None  # one for all, or one for each
    time: str | None = None  # "first", "last", "none"
    direction: str | None = None
    span: tuple[float, float] | None = None
    part: str | None = None  # of a checkpoint: the mapping that holds the net
    # Of a conditional flow: the features of the condition, the order of the first layer's inputs, as "x,c,t" (state, condition,
    # time), and the condition that stands for none. By default the condition follows the state, and the time stands where the
    # layout or `time` has it: "t,x,c", "x,c,t" or "x,c".
    condition: int = 0
    inputs: str | None = None
    none: Sequence[float] = ()

    def __post_init__(self) -> None:
        for name, given in (("inputs", self.inputs is not None), ("none", len(self.none) > 0)):
            if given and self.condition == 0:
                raise LayoutError(f"{name} (--{name}): of a conditional flow, of whose condition --condition tells the features")


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


def _spread(activations: Sequence[str], slots: int) -> list[str]:
    unknown = [name for name in activations if name not in ACTIVATIONS]
    if unknown:
        raise LayoutError(f"no activation is called {unknown[0]}; there are {', '.join(ACTIVATIONS)}")
    if len(activations) not in (1, slots):
        raise LayoutError(f"{len(activations)} activations for {slots} places; name one, or one for each place")
    return list(activations) * slots if len(activations) == 1 else list(activations)


def _field(
    modules: Sequence[DenseModule], activations: Sequence[str], time: str, choices: Choices = Choices()
) -> LayerList:
    """f: the modules with activations between them. The time joins the first one, and each later one that has a place for it; the
    condition the first."""
    order = _order(choices, time)
    if "t" in order:
        time = "first" if order.index("t") < order.index("x") else "last"
    field, width = LayerList("field"), modules[-1].width_out
    names = _spread(activations, len(modules) - 1)
    for place, module in enumerate(modules):
        timed = int(time != "none" and (place == 0 or module.width_in == width + 1))
        features = choices.condition if place == 0 else 0
        if module.width_in != width + features + timed:
            words = f"{width}" + f" and a condition of {features}" * (features > 0) + " and the time" * timed
            raise LayoutError(f"{module.name}: {module.width_in} inputs found, {words} wanted")
        if place == 0:
            _add_inputs(field, order, features)
        elif timed:
            field.add_time(time)
        field.add_dense(module)
        width = module.width_out
        if place < len(names):
            field.add(names[place])
    return field


def _order(choices: Choices, time: str) -> list[str]:
    """The first layer's inputs from first to last: "x" with "c" of a conditional flow, and with "t" unless `time` is "none"."""
    wanted = ["x"] + ["c"] * (choices.condition > 0) + ["t"] * (time != "none")
    if choices.inputs is None:
        return ["t", *wanted[:-1]] if time == "first" else wanted
    order = choices.inputs.split(",")
    if sorted(order) != sorted(wanted):
        raise LayoutError(f"inputs {choices.inputs!r}: an order of {', '.join(wanted[:-1])} and {wanted[-1]} wanted")
    if choices.time in ("first", "last") and (order.index("t") < order.index("x")) != (choices.time == "first"):
        raise LayoutError(f"inputs {choices.inputs!r} (--inputs) and time {choices.time!r} (--time) put the time on two sides of the state")
    return order


def _add_inputs(field: LayerList, order: Sequence[str], features: int) -> None:
    """What stands beside the state in this order, outward from it."""
    at = order.index("x")
    for name, side in [*((name, "last") for name in order[at + 1 :]), *((name, "first") for name in reversed(order[:at]))]:
        if name == "t":
            field.add_time(side)
        else:
            field.add_condition(side, features)


def _flow(field: LayerList, state: int, direction: str, choices: Choices, span: tuple[float, float]) -> Imported:
    spec = {
        "format": 1,
        "kind": "flow",
        "span": list(choices.span or span),
        "direction": choices.direction or direction,
        "input": {"shape": [state]},
        "field": field.layers,
    }
    if choices.condition > 0:
        spec["condition"] = {"shape": [choices.condition]} | ({"none": list(choices.none)} if choices.none else {})
    return Imported(spec, field.tensors)


def _flow_of(
    modules: Sequence[DenseModule],
    activations: Sequence[str],
    time: str,
    direction: str,
    choices: Choices,
    *,
    span: tuple[float, float] = (0.0, 1.0),
) -> Imported:
    if modules[0].weight.ndim != 2:
        raise LayoutError(f"{modules[0].name}: a convolution; the state of a flow is a vector")
    field = _field(modules, choices.activations or activations, choices.time or time, choices)
    return _flow(field, modules[-1].width_out, direction, choices, span)


def torchcfm(tensors: Mapping[str, Array], choices: Choices) -> Imported:
    """torchcfm.models.MLP: SELU between linear layers, x and then t as inputs if it is time-varying; from noise to data."""
    modules = sequence(tensors, choices.condition)
    width = modules[0].width_in - choices.condition
    if modules[-1].width_out == 1 and width > 2:
        raise LayoutError(f"{modules[-1].name}: one output; a potential, whose gradient is the field, has no layers here")
    time = "none" if width == modules[-1].width_out else "last"
    return _flow_of(modules, ["selu"], time, "noise_to_data", choices)


def torchdiffeq(tensors: Mapping[str, Array], choices: Choices) -> Imported:
    """Nets in the style of torchdiffeq and FFJORD: the time stands first among the inputs of the first layer or, in the
    ConcatLinear layers of FFJORD (ffjord, lib/layers/diffeq_layers/basic.py), of every layer; tanh; from data to noise.

    FFJORD's blocks keep the root of the span's length beside the field. Its ConcatLinear_v2 adds a multiple of the time to
    the answer of a linear layer, which is the same as the time as an input; its ConcatSquashLinear scales the answer too.
    """
    rest = {name: tensor for name, tensor in tensors.items() if not name.endswith("_num_evals")}
    roots = [rest.pop(name) for name in list(rest) if name.rpartition(".")[2] == "sqrt_end_time"]
    if len(roots) > 1 or any(root.size != 1 for root in roots):
        raise LayoutError(f"{len(roots)} lengths of spans (sqrt_end_time); a model has one field and one span")
    span = (0.0, float(roots[0].reshape(())) ** 2) if roots else (0.0, 1.0)
    squashes = _squashes(rest)
    if squashes:
        _check_time_is_no_input(choices)
        if choices.condition > 0:
            raise LayoutError(f"condition {choices.condition} (--condition): the concat-squash layers of this layout take none; write "
                              "the module itself, by hyperserve.export(module, ..., condition=)")  # fmt: skip
        return _squashed_flow(sequence(rest), squashes, choices, span)
    rates = [name for name in rest if name.endswith("._hyper_bias.weight")]
    if rates:
        _check_time_is_no_input(choices)
        choices = dataclasses.replace(choices, inputs=f"t,{choices.inputs or 'x,c'}" if choices.condition > 0 else None)
    for name in rates:
        layer = name.removesuffix("._hyper_bias.weight")
        weight, rate = rest.get(f"{layer}._layer.weight"), rest.pop(name)
        if weight is None or rate.shape != (len(weight), 1) or weight.ndim != 2:
            raise LayoutError(f"{name}: a tensor of shape {rate.shape} that fits no layer beside it")
        rest[f"{layer}._layer.weight"] = np.concatenate([rate, weight], 1)
    modules = sequence(rest, choices.condition)
    time = "none" if modules[0].width_in - choices.condition == modules[-1].width_out else "first"
    return _flow_of(modules, ["tanh"], time, "data_to_noise", choices, span=span)


def _squashes(rest: dict[str, Array]) -> list[tuple[Array, Array, Array]]:
    """Takes what ConcatSquashLinear keeps beside each layer, in their order: weight and bias of the gate, weight of the shift."""
    layers = sorted(
        (name.removesuffix("._hyper_gate.weight") for name in rest if name.endswith("._hyper_gate.weight")),
        key=lambda name: int(name.rpartition(".")[2]) if name.rpartition(".")[2].isdigit() else -1,
    )
    found = []
    for layer in layers:
        width, names = len(rest[f"{layer}._hyper_gate.weight"]), ("_hyper_gate.weight", "_hyper_gate.bias", "_hyper_bias.weight")
        for name, shape in zip(names, ((width, 1), (width,), (width, 1)), strict=True):
            if f"{layer}.{name}" not in rest or rest[f"{layer}.{name}"].shape != shape:
                raise LayoutError(f"{layer}.{name}: none of shape {shape}, as a concat-squash layer has it")
        found.append((rest.pop(f"{layer}.{names[0]}"), rest.pop(f"{layer}.{names[1]}"), rest.pop(f"{layer}.{names[2]}")))
    return found


def _check_time_is_no_input(choices: Choices) -> None:
    """Of layers that scale or shift their answers by the time."""
    for name, given in (("time", choices.time), ("inputs", choices.inputs)):
        if given is not None and (name == "time" or "t" in given.split(",")):
            raise LayoutError(f"{name} {given!r} (--{name}): in these layers of FFJORD the time is no input; leave it out")


def _squashed_flow(
    modules: Sequence[DenseModule],
    squashes: Sequence[tuple[Array, Array, Array]],
    choices: Choices,
    span: tuple[float, float],
) -> Imported:
    """FFJORD's field of concat-squash layers, with tanh between them."""
    if [len(gate) for gate, _, _ in squashes] != [module.width_out for module in modules]:
        raise LayoutError(f"{len(squashes)} gates of the time do not fit {len(modules)} layers")
    field, width = LayerList("field"), modules[-1].width_out
    names = _spread(choices.activations or ["tanh"], len(modules) - 1)
    for place, (module, squash) in enumerate(zip(modules, squashes, strict=True)):
        if module.width_in != width or module.weight.ndim != 2:
            raise LayoutError(f"{module.name}: a weight of shape {module.weight.shape}; {width} inputs wanted")
        field.add_dense(module)
        field.add_concat_squash(*squash)
        width = module.width_out
        if place < len(names):
            field.add(names[place])
    return _flow(field, width, "data_to_noise", choices, span)


def diffeqml_flow(tensors: Mapping[str, Array], choices: Choices) -> Imported:
    """The FFJORD net of DiffEqML's hypersolvers (diffeqml-research, hypersolver/density_estimation): softplus, and tanh
    before the last layer; trained from 1 (data) to 0."""
    modules = sequence(without_copies(tensors), choices.condition)
    softplus_then_tanh = ["softplus"] * (len(modules) - 2) + ["tanh"]
    return _flow_of(modules, softplus_then_tanh, _depth_cats(modules, choices), "noise_to_data", choices)


def _depth_cats(modules: Sequence[DenseModule], choices: Choices) -> str:
    """The place of the time in nets of torchdyn, whose DepthCat puts it last."""
    return "last" if modules[0].width_in == modules[-1].width_out + choices.condition + 1 else "none"


def _common(tensors: Mapping[str, Array]) -> dict[str, Array]:
    """Without the parts that all names begin with, as "state_dict." and "model."; the numbers of a sequence stay."""
    found = dict(tensors)
    while found:
        firsts = {name.partition(".")[0] for name in found}
        if len(firsts) != 1 or firsts == {min(found)} or min(firsts).isdigit():
            break
        found = {name.partition(".")[2]: tensor for name, tensor in found.items()}
    return found


class _Parts:
    """Takes the tensors of a state dict, part by part."""

    def __init__(self, tensors: Mapping[str, Array]) -> None:
        self._rest = dict(tensors)

    def __contains__(self, name: str) -> bool:
        return name in self._rest

    def dense(self, name: str) -> DenseModule:
        return DenseModule(name, self._take(f"{name}.weight"), self._rest.pop(f"{name}.bias", None))

    def norm(self, name: str, *names: str) -> dict[str, Array]:
        """Tensors of one length: weight, bias and `names`."""
        found = {one: self._take(f"{name}.{one}") for one in ("weight", "bias", *names)}
        if len({tensor.shape for tensor in found.values()}) != 1 or found["weight"].ndim != 1:
            raise LayoutError(f"{name}: tensors of a norm have one shape, [channels]")
        return found

    def sequence(self, *parts: str) -> list[DenseModule]:
        """All that have one of `parts` within their names."""
        return sequence({name: self._rest.pop(name) for name in list(self._rest) if any(part in name for part in parts)})

    def last(self) -> str:
        return max(self._rest, default="").rpartition(".")[0]

    def end(self) -> None:
        if self._rest:
            raise LayoutError(f"{min(self._rest)}: no name of this layout")

    def _take(self, name: str) -> Array:
        if name not in self._rest:
            raise LayoutError(f"{name}: missing in this layout")
        return self._rest.pop(name)


_IMAGES = {  # by channels: size, mean and deviation of MNIST and CIFAR
    1: (28, [0.1307], [0.3081]),
    3: (32, [0.4914, 0.4822, 0.4465], [0.2023, 0.1994, 0.2010]),
}


def diffeqml_classifier(tensors: Mapping[str, Array], choices: Choices) -> Imported:
    """The image classifiers of DiffEqML's hypersolvers (diffeqml-research, hypersolver/image_classification): batch norm, a
    convolution that augments (MNIST) or replaces (CIFAR) the image, a convolutional field with softplus, average pooling to
    1x1 or 2x2, a linear layer."""
    parts = _Parts(_common(without_copies(tensors)))
    modules = parts.sequence(".defunc.", ".vf.")  # as older and newer torchdyn call the field
    norm = parts.norm("0", "running_mean", "running_var")
    channels = len(norm["weight"])
    if channels not in _IMAGES:
        raise LayoutError(f"0: a batch norm of {channels} channels; {' or '.join(map(str, _IMAGES))} wanted")
    size, mean, deviation = _IMAGES[channels]
    stem, head = LayerList("stem"), LayerList("head")
    stem.add("batch_norm", norm, channels=channels)
    if "1.augment_func.weight" in parts:
        inner = LayerList("stem.1.layers")
        inner.add_dense(parts.dense("1.augment_func"))
        stem.tensors.update(inner.tensors)
        stem.add("augment", layers=inner.layers)
    else:
        stem.add_dense(parts.dense("1"))
    linear, state = parts.dense(parts.last()), modules[-1].width_out
    parts.end()
    side = round((linear.width_in // state) ** 0.5)
    if side * side * state != linear.width_in or size % max(side, 1):
        raise LayoutError(f"{linear.name}: {linear.width_in} inputs do not fit a square pool of {state} channels")
    head.add("avg_pool", kernel=size // side)
    head.add("flatten")
    head.add_dense(linear)
    field = _field(modules, choices.activations or ["softplus"], choices.time or _depth_cats(modules, choices))
    image = {"shape": [channels, size, size], "unit_range": True, "mean": mean, "deviation": deviation}
    return _classifier(image, stem, field, head, choices)


def torchdiffeq_mnist(tensors: Mapping[str, Array], choices: Choices) -> Imported:
    """The ODE net of torchdiffeq's examples/odenet_mnist.py with convolutions that downsample: group norms of at most 32
    groups, ReLU, the time first among the channels of both convolutions of the field; pixels from 0 to 1."""
    parts = _Parts(_common(tensors))
    stem, field, head = LayerList("stem"), LayerList("field"), LayerList("head")

    def add_norm(layers: LayerList, name: str) -> None:
        norm = parts.norm(name)
        channels = len(norm["weight"])
        layers.add("group_norm", norm, groups=min(32, channels), channels=channels)

    def add_conv(layers: LayerList, name: str, kernel: int, stride: int, padding: int) -> None:
        conv = parts.dense(name)
        if conv.weight.shape[2:] != (kernel, kernel):
            raise LayoutError(f"{name}: weight of shape {conv.weight.shape}; a {kernel}x{kernel} convolution wanted")
        tensors = {"weight": conv.weight} | ({} if conv.bias is None else {"bias": conv.bias})
        fields = {"in": conv.width_in, "out": conv.width_out, "bias": conv.bias is not None}
        layers.add("conv2d", tensors, **fields, kernel=kernel, stride=stride, padding=padding)

    add_conv(stem, "0", kernel=3, stride=1, padding=0)
    for norm, conv in (("1", "3"), ("4", "6")):
        add_norm(stem, norm)
        stem.add("relu")
        add_conv(stem, conv, kernel=4, stride=2, padding=1)
    for number, activation in zip((1, 2), _spread(choices.activations or ["relu"], 2), strict=True):
        add_norm(field, f"7.odefunc.norm{number}")
        field.add(activation)
        field.add_time(choices.time or "first")
        add_conv(field, f"7.odefunc.conv{number}._layer", kernel=3, stride=1, padding=1)
    add_norm(field, "7.odefunc.norm3")
    add_norm(head, "8")
    head.add("relu")
    head.add("mean_pool")
    head.add_dense(parts.dense("12"))
    parts.end()
    return _classifier({"shape": [1, 28, 28], "unit_range": True}, stem, field, head, choices)


def _classifier(
    image: dict[str, Any], stem: LayerList, field: LayerList, head: LayerList, choices: Choices
) -> Imported:
    if choices.direction is not None:
        raise LayoutError(f"direction {choices.direction}: a classifier has none")
    if choices.condition > 0:
        flows = ", ".join(name for name in LAYOUTS if name not in CLASSIFIERS)
        raise LayoutError(f"condition {choices.condition} (--condition): the nets of a classifier's layout take none; those of {flows} "
                          "do, and hyperserve.export(module, ..., condition=) writes others")  # fmt: skip
    lists = {"stem": stem.layers, "field": field.layers, "head": head.layers}
    spec = {"format": 1, "kind": "classifier", "span": list(choices.span or (0.0, 1.0)), "input": image} | lists
    return Imported(spec, stem.tensors | field.tensors | head.tensors)


LAYOUTS: dict[str, Callable[[Mapping[str, Array], Choices], Imported]] = {
    "torchcfm": torchcfm,
    "torchdiffeq": torchdiffeq,
    "torchdiffeq_mnist": torchdiffeq_mnist,
    "diffeqml_flow": diffeqml_flow,
    "diffeqml_classifier": diffeqml_classifier,
}
CLASSIFIERS = ("torchdiffeq_mnist", "diffeqml_classifier")
