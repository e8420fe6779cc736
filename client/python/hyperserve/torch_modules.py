"""From modules of torch to layers of the model format, and what fields see beside the state. Needs torch.

A module that is not of torch.nn is taken if its forward is, on the example, one of a few compositions of its children: one
after the other as it calls them, with an activation between them, with the time as first or last input of the first or of each, with the input
added; where some see the time only (an embedding), the condition or both, with what they answer added to the others, scaling
them, or beside them; with the condition as an input, first or last.
Each is tried and compared in float64, on the example, far from it and at other depths.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from hyperserve.arrays import Array
from hyperserve.layers import DenseModule, LayerList
from hyperserve.torch.compositions import ByNet, Column, Function, Steps, Within, compositions
from hyperserve.torch_running import (
    AGREEMENT,
    NotExportable,
    Part,
    apply,
    depths_of,
    difference,
    far,
    frequencies,
    refuse,
    with_condition,
    with_depth,
)

REFUSALS_MAX = 12  # of a part for the same reason; parts within parts multiply what is tried
_NOT_YET = {
    "MultiheadAttention": "the format's attention is not written from modules yet",
}


_SIZES = {"kernel_size": "kernel", "stride": "stride", "padding": "padding"}  # as the format calls them


def _array(tensor: Any) -> Array:
    found: Array = tensor.detach().cpu().numpy()
    return found


class Converter:
    """Adds modules to a list and follows the example through them: `z` with `s`, one depth a row, and of a conditional field the
    row's condition after it (torch_running.beside)."""

    def __init__(self, layers: LayerList, dtype: Any) -> None:
        self._layers = layers
        self._dtype = dtype  # of the tensors that are written

    def add(self, module: Any, path: str, z: Any, s: Any) -> Any:
        name = type(module).__name__
        if name in _NOT_YET:
            raise refuse(path, module, _NOT_YET[name])
        if isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward:
            return self._add_each(module.named_children(), path, z, s)
        match module:
            case Steps():
                return self._add_each(module.parts, path, z, s)
            case Column(of="time"):
                self._layers.add_time(module.place)
                return with_depth(z, s, first=module.place == "first")
            case Column():
                self._layers.add_condition(module.place, s.shape[1] - 1)
                return with_condition(z, s, first=module.place == "first")
            case Function():
                self._layers.add(module.name)
                return module(z)
            case ByNet():
                return self._add_by_net(module, path, z, s)
            case Within():
                return self._within(module.kind, module.inside, path, z, s)
        if name == "DepthCat":
            if getattr(module, "idx_cat", 1) != 1:
                raise refuse(path, module, f"it adds the depth to dimension {module.idx_cat}; 1 is wanted")
            self._layers.add_time("last")
            return with_depth(z, s, first=False)
        if name == "Augmenter" and getattr(module, "augment_func", None) is not None:
            return self._within("augment", module.augment_func, f"{path}.augment_func", z, s)
        if name == "GalLinear":
            return self._add_galerkin(module, path, z)
        if name in ("ConcatSquashLinear", "ConcatSquashConv2d"):
            return self._add_concat_squash(module, path, z, s)
        if type(module).__module__.startswith("torch.nn."):
            self._add_known(module, path, z)
            return module(z)
        return self._add_composed(module, path, z, s)

    def _add_each(self, parts: Iterable[Part], path: str, z: Any, s: Any) -> Any:
        refused: list[str] = []
        for key, child in parts:
            try:
                z = self.add(child, f"{path}.{key}", z, s)
            except NotExportable as error:  # the others are named as well
                refused.append(str(error))
                try:
                    z = apply(child, z, s)
                except Exception:  # of torch, of any kind
                    break
            except (RuntimeError, TypeError, AttributeError):
                if not refused:
                    raise
                break  # it cannot follow on what was refused
        if refused:
            raise NotExportable("\n".join(refused))
        return z

    def _add_concat_squash(self, module: Any, path: str, z: Any, s: Any) -> Any:
        """FFJORD's (ffjord, lib/layers/diffeq_layers/basic.py): layer(x) sigmoid(gate(s)) + shift(s)."""
        gate, shift = getattr(module, "_hyper_gate", None), getattr(module, "_hyper_bias", None)
        if not isinstance(gate, nn.Linear) or not isinstance(shift, nn.Linear) or gate.in_features + shift.in_features != 2:
            raise refuse(path, module, "its gate and shift are not linear in the time, as those of FFJORD")
        z = self.add(module._layer, f"{path}._layer", z, s)
        self._layers.add_concat_squash(*(_array(tensor.to(self._dtype)) for tensor in (
            gate.weight, torch.zeros(len(z[0])) if gate.bias is None else gate.bias, shift.weight)))  # fmt: skip
        column, pixels = depths_of(s).reshape(-1, 1), [1] * (z.dim() - 2)
        scales, shifts = (one(column).reshape(*z.shape[:2], *pixels) for one in (gate, shift))
        return z * torch.sigmoid(scales) + shifts

    def _add_galerkin(self, module: Any, path: str, z: Any) -> Any:
        """torchdyn's GalLinear (torchdyn/nn/galerkin.py) after a DepthCat, on waves of the depth: coefficients of cos(n_k r) and
        sin(n_k r) with r = dilation s + shift, n_k evenly spaced from 0 to the number of terms."""
        if type(module.expfunc).__name__ != "Fourier" or module.deg < 2:
            kind = f"{type(module.expfunc).__name__}({module.deg})"
            raise refuse(path, module, f"it expands in {kind}; the format has its waves, Fourier of at least 2 terms")
        width, out, terms = module.in_features, module.out_features, module.deg
        first = terms / (terms - 1)  # n_1
        phases = first * float(module.shift) * torch.arange(terms, dtype=torch.float64)
        cosines, sines = module.coeffs.movedim(0, 2).movedim(1, 0)  # [terms, numbers]
        cosines, sines = (cosines * phases.cos()[:, None] + sines * phases.sin()[:, None],
                          sines * phases.cos()[:, None] - cosines * phases.sin()[:, None])  # fmt: skip
        waves = torch.stack([sines, cosines], 1).reshape(2 * terms, -1)[1:]  # 1, sin(n_1 r), cos(n_1 r), ...
        weight = waves[:, : out * width].reshape(-1, out, width)
        weight = torch.cat([weight, torch.zeros_like(weight[:, :, :1])], 2)  # of the depth, which only the waves see
        tensors = {"weight": _array(weight), "bias": _array(waves[:, out * width :])}
        fields = {"in": width + 1, "out": out, "terms": len(waves), "basis": "fourier"}
        self._layers.add("galerkin_linear", tensors, **fields, period=2 * np.pi / (first * float(module.dilation)))
        return torch.cat([module(row) for row in z.split(1)])

    def _add_by_net(self, module: ByNet, path: str, z: Any, s: Any) -> Any:
        """z + n(s), (1 + a) z + b with [a, b] = n(s), cat[z, n(s)] or cat[n(s), z], where n is the net of the time, the condition
        or both."""
        if module.kind in ("cat", "cat_first"):
            if z.dim() != 2:
                raise RuntimeError("features beside an image")
            inner = LayerList(f"{self._layers.name}.{len(self._layers.layers)}.layers")
            features = module.net.values(s).shape[1]
            zeros = np.zeros((features, z.shape[1]))
            inner.add_dense(DenseModule(path, zeros, None))
            values = self._add_film(inner, module, path, features, s)
            self._layers.tensors.update(inner.tensors)
            self._layers.add("skip" if module.kind == "cat" else "augment", layers=inner.layers)
            return torch.cat([z, values] if module.kind == "cat" else [values, z], 1)
        values = self._add_film(self._layers, module, path, z.shape[1] * (2 if module.kind == "film" else 1), s)
        values = values.reshape(*values.shape, *[1] * (z.dim() - 2))
        if module.kind == "add":
            return z + values
        scales, shifts = values.chunk(2, 1)
        return (1 + scales) * z + shifts

    def _add_film(self, layers: LayerList, module: ByNet, path: str, answers: int, s: Any) -> Any:
        """Of a net with a shift for each channel, or with scales and then shifts; RuntimeError where it has not `answers`."""
        inner = LayerList(f"{layers.name}.{len(layers.layers)}.layers")
        converter, net = Converter(inner, self._dtype), module.net
        found, z = frequencies(net), net.argument_of(s)
        if found is not None:
            inner.add_fourier_features(*found)
            z = net.first(depths_of(s))
        elif net.scale != 1:
            inner.add_dense(DenseModule(path, np.array([[net.scale]]), None))
        elif net.argument in ("time_condition", "condition_time"):
            inner.add_condition("last" if net.argument == "time_condition" else "first", s.shape[1] - 1)
        z = converter._add_each(net.parts[found is not None :], path, z, s)
        if z.shape[1] != answers:
            raise RuntimeError(f"{z.shape[1]} answers of a net of the time, {answers} wanted")
        if module.kind != "film":
            inner.add_dense(DenseModule(path, np.eye(2 * answers)[:, answers:], None))
        layers.tensors.update(inner.tensors)
        if net.argument == "condition":
            layers.add("condition_film", features=s.shape[1] - 1, gate="one_plus", layers=inner.layers)
        else:
            layers.add("film", gate="one_plus", layers=inner.layers)
        return z

    def _within(self, kind: str, module: Any, path: str, z: Any, s: Any) -> Any:
        """augment: cat[module(z), z]; skip: cat[z, module(z)]; residual: z + module(z)."""
        inner = LayerList(f"{self._layers.name}.{len(self._layers.layers)}.layers")
        y = Converter(inner, self._dtype).add(module, path, z, s)
        self._layers.tensors.update(inner.tensors)
        self._layers.add(kind, layers=inner.layers)
        return z + y if kind == "residual" else torch.cat([y, z] if kind == "augment" else [z, y], 1)

    def _add_known(self, module: Any, path: str, z: Any) -> None:
        tensors = {
            name: _array(tensor.to(self._dtype))
            for name, tensor in module.state_dict().items()
            if name != "num_batches_tracked"
        }
        match module:
            case nn.Linear():
                self._layers.add_dense(DenseModule(path, tensors["weight"], tensors.get("bias")))
            case nn.Conv2d() if module.padding_mode == "zeros" and module.dilation == (1, 1):
                self._add_conv(module, path, tensors)
            case nn.BatchNorm1d() | nn.BatchNorm2d() if module.affine and module.track_running_stats:
                self._layers.add("batch_norm", tensors, channels=module.num_features, eps=module.eps)
            case nn.GroupNorm() if module.affine:
                self._layers.add("group_norm", tensors, groups=module.num_groups, channels=module.num_channels, eps=module.eps)
            case nn.LayerNorm() if set(tensors) == {"weight", "bias"}:
                self._layers.add("layer_norm", tensors, normalized_shape=list(module.normalized_shape), eps=module.eps)
            case nn.PReLU():
                self._layers.add("prelu", tensors, slopes=module.num_parameters)
            case nn.Softplus():
                self._layers.add("softplus", beta=float(module.beta))
            case nn.ELU():
                self._layers.add("elu", alpha=float(module.alpha))
            case nn.LeakyReLU():
                self._layers.add("leaky_relu", negative_slope=float(module.negative_slope))
            case nn.GELU():
                self._layers.add("gelu", approximate=module.approximate)
            case nn.Tanh() | nn.Sigmoid() | nn.ReLU() | nn.SiLU() | nn.SELU():
                self._layers.add(type(module).__name__.lower())
            case nn.Hardtanh():  # and ReLU6
                self._layers.add("clamp", low=float(module.min_val), high=float(module.max_val))
            case nn.ConvTranspose2d() if module.groups == 1 and module.dilation == (1, 1):
                fields: dict[str, Any] = {"in": module.in_channels, "out": module.out_channels, "bias": module.bias is not None}
                fields |= self._squares(module, path, _SIZES | {"output_padding": "output_padding"})
                self._layers.add("conv_transpose2d", tensors, **fields)
            case nn.Upsample() if module.mode == "nearest" and _factor(module) > 0:
                self._layers.add("upsample", scale_factor=_factor(module))
            case nn.AvgPool2d() | nn.MaxPool2d():
                self._add_pool(module, path)
            case nn.AdaptiveAvgPool2d() if _cell(module, z) > 0:
                self._layers.add("avg_pool", kernel=_cell(module, z))
            case nn.Flatten() if (module.start_dim, module.end_dim) == (1, -1):
                self._layers.add("flatten")
            case nn.PixelShuffle():
                self._layers.add("pixel_shuffle", upscale_factor=module.upscale_factor)
            case nn.PixelUnshuffle():
                self._layers.add("pixel_unshuffle", downscale_factor=module.downscale_factor)
            case nn.Identity() | nn.Dropout() | nn.Dropout1d() | nn.Dropout2d() | nn.AlphaDropout():
                pass  # nothing, in eval mode
            case _:
                raise refuse(path, module, f"the format has no layer for {module}")

    def _add_conv(self, module: Any, path: str, tensors: dict[str, Array]) -> None:
        padding = module.padding
        if padding == "same":
            padding = tuple(size // 2 for size in module.kernel_size)
        if padding == "valid":
            padding = (0, 0)
        if module.stride[0] != module.stride[1] or any(size % 2 == 0 for size in module.kernel_size if module.padding == "same"):
            raise refuse(path, module, "its stride differs by direction, or its padding by side")
        self._layers.add(
            "conv2d",
            tensors,
            **{"in": module.in_channels, "out": module.out_channels, "bias": module.bias is not None},
            stride=module.stride[0],
            groups=module.groups,
            kernel_size=list(module.kernel_size),
            padding_size=list(padding),
        )

    @staticmethod
    def _squares(module: Any, path: str, names: Mapping[str, str]) -> dict[str, int]:
        """Sizes that the format has for both directions at once, by its names."""
        fields = {}
        for name, field in names.items():
            height, width = _pair(getattr(module, name))
            if height != width:
                raise refuse(path, module, f"{name}={(height, width)}: the format has squares only")
            fields[field] = height
        return fields

    def _add_pool(self, module: Any, path: str) -> None:
        """Padding counts in a mean, and is never the largest."""
        fields = self._squares(module, path, _SIZES)
        lacks = {"ceil_mode": False, "divisor_override": None, "return_indices": False, "dilation": 1}
        lacks |= {"count_include_pad": True} if fields["padding"] > 0 else {}
        for name, wanted in lacks.items():
            found = getattr(module, name, wanted)
            if found != wanted and found != (wanted, wanted):
                raise refuse(path, module, f"{name}={found}: the format pools with {name}={wanted} only")
        self._layers.add("avg_pool" if isinstance(module, nn.AvgPool2d) else "max_pool", None, **fields)

    def _add_composed(self, module: Any, path: str, z: Any, s: Any) -> Any:
        """A module of the user's own: the first composition of its children that gives its answers."""
        probes, depths = far(z, s)
        wanted = apply(module, probes, depths)
        reasons = []
        for composed, kind in compositions(module, z, s):
            trial = LayerList(self._layers.name)
            trial.layers, trial.tensors = list(self._layers.layers), dict(self._layers.tensors)
            converter = Converter(trial, self._dtype)
            try:
                found = (converter._within(kind, composed, path, probes, depths) if kind
                         else converter.add(composed, path, probes, depths))  # fmt: skip
            except NotExportable as error:
                reasons.append(str(error))
                if reasons.count(reasons[-1]) > REFUSALS_MAX:
                    break
                continue
            except (RuntimeError, TypeError, IndexError, AttributeError):  # shapes that do not fit, a child that takes more
                continue
            if difference(found, wanted, len(z)) <= AGREEMENT:
                self._layers.layers, self._layers.tensors = trial.layers, trial.tensors
                return found[: len(z)]
        if reasons:
            raise NotExportable(reasons[0])
        names = ", ".join(f"{name} ({type(child).__name__})" for name, child in module.named_children())
        raise refuse(
            path,
            module,
            f"its answers are none of the compositions of its children that are tried: {names or 'it has none'}. Numbers, parameters "
            "and operations of its own are not seen; hyperserve.torch.export_package serves any field, as code",
        )


def _pair(value: Any) -> tuple[Any, Any]:
    return value if isinstance(value, tuple) else (value, value)


def _cell(module: Any, z: Any) -> int:
    """The size of the square cells of an adaptive pool over images z; 0: it has no such cells."""
    sizes = [(size, size if cells is None else cells) for size, cells in zip(z.shape[2:], _pair(module.output_size), strict=False)]
    found = {size // cells for size, cells in sizes if size % cells == 0}
    return found.pop() if z.dim() == 4 and len(found) == 1 and all(size % cells == 0 for size, cells in sizes) else 0


def _factor(module: Any) -> int:
    """Of an Upsample; 0: it has none, or differs by direction."""
    factors = set(_pair(module.scale_factor))
    factor = factors.pop() if len(factors) == 1 else None
    return int(factor) if factor is not None and factor == int(factor) else 0
