"""Writes a flow whose field is code: what torch.export and AOTInductor compile, in the place of layers. Needs a C++ compiler."""

from __future__ import annotations

import copy
import os
import pathlib
import tempfile
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from hyperserve import local
from hyperserve.client import Client
from hyperserve.exporting import ExportError
from hyperserve.folder import staged_model

AGREEMENT = 1e-4  # relative; both compute in float32
ROWS_MAX = 1 << 20  # of one evaluation


def export_package(
    module: Any,
    folder: str | os.PathLike[str],
    *,
    example: Any,
    condition: Any = None,
    direction: str = "noise_to_data",
    span: tuple[float, float] = (0.0, 1.0),
    device: str = "cpu",
    program: str | os.PathLike[str] | None = None,
) -> pathlib.Path:
    """Compiles the field `module` for `device` and writes a flow with it (model.json, field.pt2) into the new folder.

    forward(s, z), or forward(s, z, c) where `condition` [rows, features] is given, takes s [rows], the depth of each row,
    z [rows, state shape] and c, all float32, and returns dz/ds in z's shape, for any number of rows. `example` holds such z,
    at least two. Any module that torch.export takes will do, without changes of what it does to the rows beside one.

    field.pt2 is code: a daemon runs it only with --allow_code=NAME. It is compiled for the processor of this machine and for
    this release of torch, which is that of the daemon. `hyperserve --check` reads the folder, and a daemon serves it on `device`
    and its slopes are compared, before it takes its name. ExportError says where they are not the module's, FileNotFoundError
    that there is no compiler or no program.
    """
    z = torch.as_tensor(example).detach().cpu().float()
    if z.dim() < 2 or len(z) < 2:
        raise ValueError(f"an example of shape {tuple(z.shape)}; two rows of states or more are wanted")
    inputs = [torch.linspace(*span, len(z)), z]
    if condition is not None:
        inputs.append(torch.as_tensor(condition).detach().cpu().float())
    spec: dict[str, Any] = {"format": 1, "kind": "flow", "span": list(span), "direction": direction}
    spec["input"] = {"shape": list(z.shape[1:])}
    spec |= {"condition": {"shape": [inputs[2].shape[1]]}} if condition is not None else {}
    spec["field_package"] = {"macs": _macs(module, inputs)}
    package = _compiled(module, inputs, device)
    with staged_model(folder, spec, {}, program, {"field.pt2": package}) as staged:
        served = local.daemon(staged.parent, program, device=device, allow_code=staged.name)
        with served as address, Client(address) as client:
            _compare(client, staged.name, module, inputs, span)
    return pathlib.Path(folder)


def _macs(module: Any, inputs: list[Any]) -> int:
    """Multiply-accumulates of one row, of what torch counts: products of matrices, convolutions, attention."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        module(*inputs)
    return max(int(counter.get_total_flops()) // (2 * len(inputs[0])), 1)


def _compiled(module: Any, inputs: list[Any], device: str) -> bytes:
    import torch._inductor  # takes seconds

    rows = torch.export.Dim("rows", min=1, max=ROWS_MAX)
    field = copy.deepcopy(module).to(device).float().eval().requires_grad_(False)
    exported = torch.export.export(
        field, tuple(one.to(device) for one in inputs), dynamic_shapes=tuple({0: rows} for _ in inputs)
    )
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "field.pt2")
        # Each solver of a daemon evaluates f on its own core.
        torch._inductor.aoti_compile_and_package(exported, package_path=path, inductor_configs={"cpp.threads": 1})
        return pathlib.Path(path).read_bytes()


def _compare(client: Client, model: str, module: Any, inputs: list[Any], span: tuple[float, float]) -> None:
    """ExportError where a slope of the served field, at one of four depths, is not the module's."""
    z, given = inputs[1], {"condition": inputs[2].numpy()} if len(inputs) > 2 else {}
    step = 0.125 * (span[1] - span[0])
    for share in (0.0, 0.25, 0.5, 0.875):  # of one Euler step each
        begin = span[0] + share * (span[1] - span[0])
        end = client.solve(model, state=z.numpy(), span=(begin, begin + step), plan="euler:1", **given).state
        with torch.no_grad():
            slope = module(torch.full((len(z),), begin), *inputs[1:])
        error = float(((torch.as_tensor(end) - z) / step - slope).abs().max())
        # The subtraction leaves an error of the size of z.
        size = max(float(slope.abs().max()), 1e-6 * float(z.abs().max()) / step / AGREEMENT)
        if not error <= AGREEMENT * size:
            raise ExportError(f"the field at depth {begin:g}: the served model differs from the module by {error / size:.1e}")
