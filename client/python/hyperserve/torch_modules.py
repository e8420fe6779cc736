"""From modules of torch to layers of the model format, and the depth column that fields see. Needs torch.

A module that is not of torch.nn is taken if its forward is, on the example, one of a few compositions of its children: one
after the other, with an activation between them, with the time as first or last input, with the input added. Each is tried
and compared in float64, on the example, far from it and at other depths.
"""

from __future__ import annotations

import copy
import inspect
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from hyperserve.arrays import Array
from hyperserve.layers import ACTIVATIONS, DenseModule, LayerList, LayoutError

AGREEMENT = 1e-7  # relative; torch's softplus has a threshold that costs 2e-9
_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    name: getattr(nn.functional, name, None) or getattr(torch, name) for name in ACTIVATIONS
}
_NOT_YET = {
    "ConcatSquashLinear": "the format has no concat-squash layer yet",
    "ConcatSquashConv2d": "the format has no concat-squash layer yet",
    "GalLinear": "the format has no Galerkin layer yet",
    "GaussianFourierProjection": "the format has no time embedding yet",
    "MultiheadAttention": "the format has no attention yet",
    "ConvTranspose2d": "the format has no transposed convolution yet",
}


class NotExportable(LayoutError):
    """A module that the format cannot hold. The message names it, its class and the reason."""


def _array(tensor: Any) -> Array:
    found: Array = tensor.detach().cpu().numpy()
    return found


def _refuse(path: str, module: Any, reason: str) -> NotExportable:
    return NotExportable(f"{path} ({type(module).__name__}): {reason}")


def with_depth(z: Any, s: Any, first: bool) -> Any:
    """z with the depth of each row as one more feature or channel."""
    column = s.reshape(-1, *[1] * (z.dim() - 1)).expand(-1, 1, *z.shape[2:])
    return torch.cat([column, z] if first else [z, column], 1)


def takes_time(module: Any) -> bool:
    """True for forward(t, x)."""
    parameters = inspect.signature(module.forward).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return len([one for one in parameters if one.kind in kinds and one.default is one.empty]) == 2


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
    found = [(".".join(filter(None, (path, name))), part, _hidden(part)) for name, part in module.named_modules()]
    refused = [str(_refuse(name, part, reason)) for name, part, reason in found if reason]
    if refused:
        raise NotExportable("\n".join(refused))
    return copy.deepcopy(module).cpu().double().eval()


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


class Converter:
    """Adds modules to a list and follows the example through them: `z` with one depth `s` a row."""

    def __init__(self, layers: LayerList, dtype: Any) -> None:
        self._layers = layers
        self._dtype = dtype  # of the tensors that are written

    def add(self, module: Any, path: str, z: Any, s: Any) -> Any:
        name = type(module).__name__
        if name in _NOT_YET:
            raise _refuse(path, module, _NOT_YET[name])
        if isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward:
            return self._add_each(module, path, z, s)
        if isinstance(module, _Time):
            self._layers.add_time(module.place)
            return with_depth(z, s, first=module.place == "first")
        if isinstance(module, _Function):
            self._layers.add(module.name)
            return _FUNCTIONS[module.name](z)
        if name == "DepthCat":
            if getattr(module, "idx_cat", 1) != 1:
                raise _refuse(path, module, f"it adds the depth to dimension {module.idx_cat}; 1 is wanted")
            self._layers.add_time("last")
            return with_depth(z, s, first=False)
        if name == "Augmenter" and getattr(module, "augment_func", None) is not None:
            return self._within("augment", module.augment_func, f"{path}.augment_func", z, s)
        if type(module).__module__.startswith("torch.nn."):
            self._add_known(module, path, z)
            return module(z)
        return self._add_composed(module, path, z, s)

    def _add_each(self, module: Any, path: str, z: Any, s: Any) -> Any:
        refused: list[str] = []
        for key, child in module.named_children():
            try:
                z = self.add(child, f"{path}.{key}", z, s)
            except NotExportable as error:  # the others are named as well
                refused.append(str(error))
                z = apply(child, z, s)
            except (RuntimeError, TypeError, AttributeError):
                if not refused:
                    raise
                break  # it cannot follow on what was refused
        if refused:
            raise NotExportable("\n".join(refused))
        return z

    def _within(self, kind: str, module: Any, path: str, z: Any, s: Any) -> Any:
        """augment: cat[module(z), z]; residual: z + module(z)."""
        inner = LayerList(f"{self._layers.name}.{len(self._layers.layers)}.layers")
        y = Converter(inner, self._dtype).add(module, path, z, s)
        self._layers.tensors.update(inner.tensors)
        self._layers.add(kind, layers=inner.layers)
        return torch.cat([y, z], 1) if kind == "augment" else z + y

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
                raise _refuse(path, module, f"the format has no layer for {module}")

    def _add_conv(self, module: Any, path: str, tensors: dict[str, Array]) -> None:
        padding = module.padding
        if padding == "same":
            padding = tuple(size // 2 for size in module.kernel_size)
        if padding == "valid":
            padding = (0, 0)
        if module.stride[0] != module.stride[1] or any(size % 2 == 0 for size in module.kernel_size if module.padding == "same"):
            raise _refuse(path, module, "its stride differs by direction, or its padding by side")
        self._layers.add(
            "conv2d",
            tensors,
            **{"in": module.in_channels, "out": module.out_channels, "bias": module.bias is not None},
            stride=module.stride[0],
            groups=module.groups,
            kernel_size=list(module.kernel_size),
            padding_size=list(padding),
        )

    def _add_pool(self, module: Any, path: str) -> None:
        """Square cells only; padding counts in a mean, and is never the largest."""
        fields = {}
        for name in ("kernel_size", "stride", "padding"):
            sizes = _pair(getattr(module, name))
            if sizes[0] != sizes[1]:
                raise _refuse(path, module, f"{name}={sizes}: the format pools over squares")
            fields[name] = sizes[0]
        padded = fields["padding"] > 0
        lacks = {"ceil_mode": False, "divisor_override": None, "return_indices": False, "dilation": 1}
        lacks |= {"count_include_pad": True} if padded else {}
        for name, wanted in lacks.items():
            found = getattr(module, name, wanted)
            if found != wanted and found != (wanted, wanted):
                raise _refuse(path, module, f"{name}={found}: the format pools with {name}={wanted} only")
        kind = "avg_pool" if isinstance(module, nn.AvgPool2d) else "max_pool"
        self._layers.add(kind, kernel=fields["kernel_size"], stride=fields["stride"], padding=fields["padding"])

    def _add_composed(self, module: Any, path: str, z: Any, s: Any) -> Any:
        """A module of the user's own: the first composition of its children that gives its answers."""
        probes, depths = far(z, s)
        wanted = apply(module, probes, depths)
        reasons = []
        for composed, residual in _compositions(module):
            trial = LayerList(self._layers.name)
            trial.layers, trial.tensors = list(self._layers.layers), dict(self._layers.tensors)
            converter = Converter(trial, self._dtype)
            try:
                found = (converter._within("residual", composed, path, probes, depths) if residual
                         else converter.add(composed, path, probes, depths))  # fmt: skip
            except NotExportable as error:
                reasons.append(str(error))
                continue
            except (RuntimeError, TypeError, IndexError):  # shapes that do not fit, a child that takes more
                continue
            if difference(found, wanted, len(z)) <= AGREEMENT:
                self._layers.layers, self._layers.tensors = trial.layers, trial.tensors
                return found[: len(z)]
        if reasons:
            raise NotExportable(reasons[0])
        names = ", ".join(f"{name} ({type(child).__name__})" for name, child in module.named_children())
        raise _refuse(
            path, module, f"its answers are none of the compositions of its children that are tried: {names or 'it has none'}"
        )


def _pair(value: Any) -> tuple[Any, Any]:
    return value if isinstance(value, tuple) else (value, value)


def _cell(module: Any, z: Any) -> int:
    """The size of the square cells of an adaptive pool over images z; 0: it has no such cells."""
    sizes = [(size, size if cells is None else cells) for size, cells in zip(z.shape[2:], _pair(module.output_size), strict=False)]
    found = {size // cells for size, cells in sizes if size % cells == 0}
    return found.pop() if z.dim() == 4 and len(found) == 1 and all(size % cells == 0 for size, cells in sizes) else 0


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


class _Time(nn.Module):  # type: ignore[misc]
    """Stands for the time as an input of what follows."""

    def __init__(self, place: str) -> None:
        super().__init__()
        self.place = place


class _Function(nn.Module):  # type: ignore[misc]
    """Stands for an activation that a forward calls as a function."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


def _compositions(module: Any) -> Iterator[tuple[Any, bool]]:
    """What is tried: modules in a sequence, and whether the input is added to what they give. The simplest first."""
    children = list(module.children())
    lists = [child for child in children if isinstance(child, nn.ModuleList)]
    parts = list(lists[0]) if lists else children
    if not parts:
        return
    for activation, time, residual in itertools.product((None, *ACTIVATIONS), ("none", "last", "first"), (False, True)):
        if activation is not None and len(parts) < 2:
            continue
        sequence = [] if time == "none" else [_Time(time)]
        for place, part in enumerate(parts):
            sequence.append(part)
            if activation is not None and place < len(parts) - 1:
                sequence.append(_Function(activation))
        yield nn.Sequential(*sequence), residual
