"""Lists of layers of the model format under construction, with the names that their tensors have in it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from hyperserve.arrays import Array

ACTIVATIONS = ("elu", "gelu", "leaky_relu", "relu", "selu", "sigmoid", "silu", "sin", "softplus", "tanh")
Layer = dict[str, Any]


class LayoutError(ValueError):
    """Tensors that do not have the layout. The message names them."""


@dataclasses.dataclass(frozen=True)
class DenseModule:
    """A linear layer, weight [out, in], or a convolution, weight [out, in, height, width]. LayoutError where it is neither."""

    name: str
    weight: Array
    bias: Array | None  # [out]

    def __post_init__(self) -> None:
        if self.weight.ndim not in (2, 4) or 0 in self.weight.shape:
            raise LayoutError(f"{self.name}: no weight of a linear layer or convolution, but one of shape {self.weight.shape}")
        for tensor in (self.weight, *([] if self.bias is None else [self.bias])):
            if tensor.dtype.kind != "f":
                raise LayoutError(f"{self.name}: numbers of type {tensor.dtype}; floating-point ones wanted")
        if self.bias is not None and self.bias.shape != (self.width_out,):
            raise LayoutError(f"{self.name}: a bias of shape {self.bias.shape}; ({self.width_out},) wanted")

    @property
    def width_in(self) -> int:
        return self.weight.shape[1]

    @property
    def width_out(self) -> int:
        return self.weight.shape[0]


class LayerList:
    """A list of layers under construction, and the tensors with their names in the format."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.layers: list[Layer] = []
        self.tensors: dict[str, Array] = {}

    def add(self, kind: str, tensors: Mapping[str, Array] | None = None, **fields: Any) -> None:
        for name, tensor in (tensors or {}).items():
            self.tensors[f"{self.name}.{len(self.layers)}.{name}"] = tensor
        self.layers.append({kind: fields})

    def add_dense(self, module: DenseModule) -> None:
        """A linear layer, or a convolution that keeps height and width."""
        tensors = {"weight": module.weight}
        fields: dict[str, Any] = {"in": module.width_in, "out": module.width_out}
        if module.bias is None:
            fields["bias"] = False
        else:
            tensors["bias"] = module.bias
        if module.weight.ndim == 2:
            self.add("linear", tensors, **fields)
            return
        kernel = module.weight.shape[2]
        if module.weight.shape[3] != kernel or kernel % 2 == 0:
            raise LayoutError(f"{module.name}: a kernel of shape {module.weight.shape[2:]}; a square of odd size keeps the image")
        self.add("conv2d", tensors, **fields, kernel=kernel, padding=kernel // 2)

    def add_concat_squash(self, gate: Array, gate_bias: Array, shift: Array) -> None:
        """FFJORD's: what stands before it times sigmoid(gate s + gate_bias) plus shift s; [channels, 1], [channels], as gate."""
        inner = LayerList(f"{self.name}.{len(self.layers)}.layers")
        bias = np.concatenate([gate_bias, np.zeros_like(gate_bias)])
        inner.add_dense(DenseModule("film", np.concatenate([gate, shift]), bias))
        self.tensors.update(inner.tensors)
        self.add("film", gate="sigmoid", layers=inner.layers)

    def add_fourier_features(self, multiples: Array, order: Array) -> None:
        """`order` [cos(w s), sin(w s)], in float64: a rounded multiple w would turn waves of high frequency."""
        self.add("fourier_features", {"weight": multiples / (2 * np.pi)}, features=2 * len(multiples))
        if not np.array_equal(order, np.eye(len(order))):
            self.add_dense(DenseModule("order", order, None))

    def add_condition(self, place: str, features: int) -> None:
        self.layers.append({"condition_cat": {"features": features} | ({"first": True} if place == "first" else {})})

    def add_time(self, place: str) -> None:
        if place != "none":
            self.layers.append({"depth_cat": {"first": True} if place == "first" else {}})
