"""Writes a model folder from a module of torch, and compares the served model with the module in float64."""

from __future__ import annotations

import copy
import os
import pathlib
import shutil
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from hyperserve import local
from hyperserve.arrays import Array
from hyperserve.client import Client
from hyperserve.folder import write_model
from hyperserve.layers import LayerList, LayoutError


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
    program: str | os.PathLike[str] | None = None,
) -> pathlib.Path:
    """Writes the field `module` (a flow; with `head`, and perhaps `stem`, a classifier) into the new folder.

    `module` is an nn.Sequential or a module of your own, with forward(x) or forward(t, x), a torchdyn NeuralODE, or an
    nn.Sequential that holds one: what stands before it is the stem, what follows the head. `example` holds rows of inputs.
    NotExportable names each part that the format cannot hold. `hyperserve --check` reads the folder, a daemon serves it, and
    ExportError says where its answers in float64 are not the module's.
    """
    import torch

    from hyperserve.torch_modules import AGREEMENT, Converter, apply

    def double(part: Any) -> Any:
        return copy.deepcopy(part).cpu().double().eval()

    module, stem, head = _parts(module, stem, head)
    dtypes = {tensor.dtype for part in (module, stem, head) if part is not None for tensor in part.parameters()}
    dtype = torch.float64 if torch.float64 in dtypes else torch.float32
    field, stem, head = double(_field_of(module)), stem and double(stem), head and double(head)
    x = torch.as_tensor(example).detach().cpu().double()[:8]
    if x.dim() < 2:
        raise ValueError(f"an example of shape {tuple(x.shape)}; rows of inputs wanted")
    lists = {name: LayerList(name) for name in ("stem", "field", "head")}
    with torch.no_grad():
        depths = torch.linspace(span[0], span[1], len(x), dtype=torch.float64)  # another one in each row
        z = x if stem is None else Converter(lists["stem"], dtype).add(stem, "stem", x, depths)
        slope = Converter(lists["field"], dtype).add(field, "field", z, depths)
        if slope.shape != z.shape:
            raise ValueError(f"the field maps {tuple(z.shape)} to {tuple(slope.shape)}; it must keep the shape")
        if head is not None:
            Converter(lists["head"], dtype).add(head, "head", z, depths)

        def euler(begin: float) -> Any:
            return z + (span[1] - begin) * apply(field, z, torch.full((len(z),), begin, dtype=torch.float64))

        inside = span[0] + 0.25 * (span[1] - span[0])
        wanted = {"field": euler(inside)} | ({} if head is None else {"whole": head(euler(span[0]))})
    spec: dict[str, Any] = {"format": 1, "kind": "flow" if head is None else "classifier", "span": list(span)}
    spec |= {"direction": direction} if head is None else {}
    spec["input"] = {"shape": list(x.shape[1:])} | ({"unit_range": True} if unit_range else {})
    spec |= {name: part.layers for name, part in lists.items() if part.layers}
    spec |= {"labels": list(labels)} if labels else {}
    tensors = {name: tensor for part in lists.values() for name, tensor in part.tensors.items()}
    path = write_model(folder, spec, tensors, program)
    try:
        found = _served(path, x.numpy(), z.numpy(), (inside, span[1]), head is not None, program)
        for part, answer in wanted.items():
            difference = float(np.abs(found[part] - answer.numpy()).max() / max(np.abs(answer.numpy()).max(), 1e-30))
            if not difference <= AGREEMENT:
                raise ExportError(f"{part}: the served model differs from the module by {difference:.1e}, above {AGREEMENT}")
    except BaseException:
        shutil.rmtree(path)
        raise
    return path


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


def _served(
    path: pathlib.Path, x: Array, z: Array, span: tuple[float, float], classifier: bool, program: str | os.PathLike[str] | None
) -> dict[str, Array]:
    """One Euler step of the field in float64, and of a classifier the logits after one step over its span."""
    with tempfile.TemporaryDirectory() as repository:
        shutil.copytree(path, pathlib.Path(repository) / path.name)
        with local.daemon(repository, program) as address, Client(address) as client:
            plan = "euler:1/double"
            found = {"field": client.solve(path.name, state=z, span=span, plan=plan).state}
            if classifier:
                logits = client.classify(path.name, x, plan=plan, logits=True).logits
                assert logits is not None
                found["whole"] = logits
            return found
