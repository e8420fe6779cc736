"""Writes a model folder from a module of torch, and compares the served model with the module in float64."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from hyperserve import local
from hyperserve.arrays import Array
from hyperserve.client import Client
from hyperserve.folder import staged_model
from hyperserve.layers import LayerList, LayoutError
from hyperserve.requests import Options

REPLY_BYTES_MAX = (64 << 20) - (64 << 10)  # what a daemon grants and a client receives


class ExportError(LayoutError):
    """The served model's answers differ from the module's. The message says by how much."""


def export(
    module: Any,
    folder: str | os.PathLike[str],
    *,
    example: Any,
    direction: str = "data_to_noise",
    span: tuple[float, float] = (0.0, 1.0),
    stem: Any = None,
    head: Any = None,
    labels: Sequence[str] = (),
    unit_range: bool = False,
    kind: str = "",
    save_at: Sequence[float] = (),
    condition: Any = None,
    none: Sequence[float] = (),
    program: str | os.PathLike[str] | None = None,
) -> pathlib.Path:
    """Writes the field `module` (a flow; with `head`, and perhaps `stem`, a classifier) into the new folder.

    `module` is an nn.Sequential or a module of your own, with forward(x), forward(t, x) or forward(t, x, condition), a torchdyn
    NeuralODE, or an nn.Sequential that holds one: what stands before it is the stem, what follows the head. `example` [rows,
    input shape] holds inputs, of which eight are taken. `span` is (s0, s1), the depths of the solve. `kind` "regressor" makes
    numbers of the head's answers, with `labels` as their names; "trajectory", without a head, has the states at the depths
    `save_at` as its answer. A conditional field comes with `condition`, an example [rows, features]; `none` is the condition
    that stands for none, if it was trained with one. Modules are copied, never changed; tensors are written as float64 if
    any of the module's is, or else as float32.

    `hyperserve --check` reads the folder and a daemon serves it, before it takes its name. NotExportable names each part
    that the format cannot hold, ExportError says where served answers are not the module's, ModelFolderError what does not
    fit, ValueError what is wrong with the example, FileExistsError and FileNotFoundError what is there and what is not.
    """
    import torch

    from hyperserve.torch_modules import Converter
    from hyperserve.torch_running import apply, at_depth, beside, conditions_of, double, example_rows, far, try_out

    module, stem, head = _parts(module, stem, head)
    kind = kind or ("flow" if head is None else "classifier")
    _check_kind(kind, head, save_at)
    field = double(_field_of(module), "field", condition is not None)
    dtype = written_dtype((module, stem, head))
    stem, head = (part if part is None else double(part, name) for name, part in (("stem", stem), ("head", head)))
    x, lists = example_rows(example), {name: LayerList(name) for name in ("stem", "field", "head")}

    def add(part: Any, name: str, z: Any, s: Any) -> Any:
        try:
            return Converter(lists[name], dtype).add(part, name, z, s)
        except RuntimeError:
            try_out(part, name, z, s)
            raise

    begin, length = span[0], span[1] - span[0]
    with torch.no_grad():
        depths = torch.linspace(*span, len(x), dtype=torch.float64)  # another one in each row
        s = beside(depths, None if condition is None else example_rows(condition))
        z = x if stem is None else add(stem, "stem", x, depths)
        slope = add(field, "field", z, s)
        if slope.shape != z.shape:
            raise ValueError(f"the field maps {tuple(z.shape)} to {tuple(slope.shape)}; it must keep the shape")
        if head is not None:
            add(head, "head", z, depths)
            end = z + length * apply(field, z, at_depth(begin, s))
            answers = head(end)
    spec: dict[str, Any] = {"format": 1, "kind": kind, "span": list(span)}
    spec |= {"direction": direction} if kind == "flow" else {}
    spec |= {"save_at": [float(s) for s in save_at]} if kind == "trajectory" else {}
    spec["input"] = {"shape": list(x.shape[1:])} | ({"unit_range": True} if unit_range else {})
    if condition is not None:
        features = s.shape[1] - 1
        spec["condition"] = {"shape": [features]} | ({"none": [float(one) for one in none]} if len(none) else {})
    spec |= {name: part.layers for name, part in lists.items() if part.layers}
    spec |= {"labels": list(labels)} if labels else {}
    tensors = {name: tensor for part in lists.values() for name, tensor in part.tensors.items()}
    with staged_model(folder, spec, tensors, program) as staged:
        with local.daemon(staged.parent, program) as address, Client(address) as client:
            compare_field(client, staged.name, field, *far(z, s), span)
            if head is not None:
                more: Options = {"plan": "euler:1/double", "condition": conditions_of(s)}
                served = (client.classify(staged.name, x.numpy(), logits=True, **more).logits if kind == "classifier"
                          else client.predict(staged.name, x.numpy(), **more).outputs)  # fmt: skip
                _compare("the whole model", served, answers)
    return pathlib.Path(folder)


def _check_kind(kind: str, head: Any, save_at: Sequence[float]) -> None:
    heads = {"flow": False, "trajectory": False, "classifier": True, "regressor": True}
    if kind not in heads:
        raise ValueError(f"kind {kind!r}: {', '.join(heads)} wanted")
    if heads[kind] != (head is not None):
        raise ValueError(f"a {kind} has {'a' if heads[kind] else 'no'} head")
    if kind == "trajectory" and not len(save_at):
        raise ValueError("a trajectory needs save_at=, the depths of the states that are its answer")
    if kind != "trajectory" and len(save_at):
        raise ValueError(f"save_at: the depths of a trajectory's answer; a {kind} has none")


def compare_field(client: Client, model: str, field: Any, z: Any, s: Any, span: tuple[float, float]) -> None:
    """ExportError where a slope of the served field at z [rows, state shape], at one of four depths, is not the module's.
    `s` holds the rows' conditions as torch_running.beside says; its depths do not count."""
    import torch

    from hyperserve.torch_running import apply, at_depth, conditions_of

    length = span[1] - span[0]
    for share in (0.0, 0.25, 0.5, 0.875):  # of one Euler step each; exact in binary
        begin, step = span[0] + share * length, 0.125 * length
        for rows, of_rows in zip(z.split(8), s.split(8), strict=True):
            end = client.solve(model, state=rows.numpy(), span=(begin, begin + step), plan="euler:1/double",
                               condition=conditions_of(of_rows), max_reply_bytes=REPLY_BYTES_MAX).state  # fmt: skip
            with torch.no_grad():
                slope = apply(field, rows, at_depth(begin, of_rows))
            # The subtraction leaves an error of the size of z.
            _compare(f"the field at depth {begin:g}", (end - rows.numpy()) / step, slope, 1e-6 * float(rows.abs().max()))


def _compare(part: str, served: Array | None, wanted: Any, floor: float = 0.0) -> None:
    import torch

    from hyperserve.torch_running import AGREEMENT, difference

    found = difference(torch.from_numpy(np.asarray(served)), wanted, len(wanted), floor)
    if not found <= AGREEMENT:
        raise ExportError(f"{part}: the served model differs from the module by {found:.1e}, above {AGREEMENT}")


def written_dtype(parts: Sequence[Any]) -> Any:
    """That of the tensors that are written."""
    import torch

    dtypes = {tensor.dtype for part in parts if part is not None for tensor in part.parameters()}
    return torch.float64 if torch.float64 in dtypes else torch.float32


def _parts(module: Any, stem: Any, head: Any) -> tuple[Any, Any, Any]:
    """Of an nn.Sequential that holds a NeuralODE: the field, and what stands before and after it."""
    from torch import nn

    if isinstance(module, nn.Sequential) and stem is None and head is None:
        places = [place for place, child in enumerate(module) if type(child).__name__ in ("NeuralODE", "NeuralDE")]
        if len(places) > 1:
            raise LayoutError(f"{len(places)} Neural ODEs in one module; a model has one field")
        if places:
            (at,) = places
            return module[at], module[:at] if at else None, module[at + 1 :] if at + 1 < len(module) else None
    return module, stem, head


def _field_of(module: Any) -> Any:
    """What torchdyn wraps: NeuralODE.vf is a DEFunc, and its vf (m in older releases) the net."""
    while type(module).__name__ in ("NeuralODE", "NeuralDE", "DEFunc", "DEFuncBase"):
        module = next(getattr(module, name) for name in ("vf", "defunc", "m") if hasattr(module, name))
    return module
