"""Writes a trained correction g, a module of torch, as the next generation of a model in a folder."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hyperserve import local
from hyperserve.arrays import Array, as_numpy
from hyperserve.client import Client
from hyperserve.exporting import compare_field, written_dtype
from hyperserve.folder import check, staged_model, sync, sync_all, write_json
from hyperserve.layers import DenseModule, LayerList
from hyperserve.tensor_files import write_safetensors

BASE_FILES = ("model.json", "weights.safetensors")
GENERATION_GAP_MAX = 1_000_000  # as in core/model/repository/repository.h


def export_correction(
    net: Any,
    model: str | os.PathLike[str],
    *,
    example: Any,
    probe: Any,
    method: str,
    direction: str,
    eps: tuple[float, float],
    steps: Sequence[int],
    inputs: Sequence[str] = ("state", "slope_1", "step"),
    provenance: Mapping[str, str] | None = None,
    program: str | os.PathLike[str] | None = None,
) -> pathlib.Path:
    """The folder of the new generation, which a daemon finds, or hyperserve.admin.publish sends. The gate decides there.

    `net` maps rows of what it sees, `inputs` concatenated, to rows of the state's shape; it is copied, never changed.
    `example` [rows, ...] holds such rows. `probe` [16 to 256 rows, ...] is what the gate measures on: inputs of a
    classifier, starts of the solve for a flow. `eps` are the smallest and the largest step size of the training, `steps`
    the K at which it claims to win; docs/MODEL_FORMAT.md says more of both.

    The generation is checked, and g compared in float64 with the net, before it takes a number. NotExportable, ExportError,
    ModelFolderError and ValueError say what was wrong; then nothing of it is left.
    """
    folder = pathlib.Path(model).absolute()
    if pathlib.PurePath(method).name != method:
        raise ValueError(f"method {method!r}; the name of a folder wanted, as in plans: heun")
    layers = _converted(net, example)
    spec = {
        "format": 1,
        "method": method,
        "direction": direction,
        "eps": list(eps),
        "steps": list(steps),
        "inputs": list(inputs),
        "net": layers.layers,
        "base_digest": base_digest(folder),
        "provenance": dict(provenance or {}),
    }
    rows = as_numpy(probe)
    _compare(net, layers, example, program)
    with tempfile.TemporaryDirectory() as staging:
        staged = pathlib.Path(staging) / folder.name
        written = staged / "hypersolvers" / method / "1"
        written.mkdir(parents=True)
        for name in BASE_FILES:
            (staged / name).symlink_to(folder / name)
        write_json(written / "hypersolver.json", spec)
        write_safetensors(written / "weights.safetensors", layers.tensors)
        write_safetensors(written / "probe.safetensors", {"x": rows if rows.dtype == np.uint8 else rows.astype(np.float32)})
        _write_manifest(written)
        check(staged, program)
        return _publish(written, folder / "hypersolvers" / method)


def base_digest(model: pathlib.Path) -> str:
    """The SHA-256 of the raw SHA-256 of model.json followed by that of weights.safetensors."""
    parts = (hashlib.sha256((model / name).read_bytes()).digest() for name in BASE_FILES)
    return hashlib.sha256(b"".join(parts)).hexdigest()


def _converted(net: Any, example: Any) -> LayerList:
    import torch

    from hyperserve.torch_modules import Converter
    from hyperserve.torch_running import double, example_rows

    layers, x = LayerList("net"), example_rows(example)
    with torch.no_grad():
        Converter(layers, written_dtype([net])).add(double(net, "net"), "net", x, torch.zeros(len(x), dtype=torch.float64))
    return layers


def _compare(net: Any, layers: LayerList, example: Any, program: str | os.PathLike[str] | None) -> None:
    """Serves g as a field, and compares it as fields are: of the state [what g sees, its answer], g moves the latter."""
    import torch
    from torch import nn

    from hyperserve.torch_running import apply, double, example_rows, far

    class Field(nn.Module):  # type: ignore[misc]
        def forward(self, s: Any, z: Any) -> Any:
            return torch.cat([torch.zeros_like(z[:, :seen]), apply(g, z[:, :seen], s.expand(len(z)))], 1)

    g, x = double(net, "net"), example_rows(example)
    depths = torch.linspace(0, 1, len(x), dtype=torch.float64)
    with torch.no_grad():
        seen, answer = x.shape[1], apply(g, x, depths)
    if answer.shape[2:] != x.shape[2:]:
        raise ValueError(f"the net maps {tuple(x.shape)} to {tuple(answer.shape)}; only features or channels may differ")
    z = torch.cat([x, answer], 1)
    spec, tensors = _as_field(layers, seen, list(z.shape[1:]))
    with tempfile.TemporaryDirectory() as folder, staged_model(f"{folder}/g", spec, tensors, program) as staged:
        with local.daemon(staged.parent, program) as address, Client(address) as client:
            compare_field(client, staged.name, Field(), *far(z, depths), (0.0, 1.0))


def _as_field(net: LayerList, seen: int, shape: list[int]) -> tuple[dict[str, Any], dict[str, Array]]:
    """A model whose field is the net on the first `seen` features or channels of its state, and moves the others."""
    width, pixels = shape[0], [1] * (len(shape) - 1)
    field, unit = LayerList("field"), np.eye(width)
    field.add_dense(DenseModule("seen", unit[:seen].reshape(seen, width, *pixels), None))
    for name, tensor in net.tensors.items():
        _, place, rest = name.split(".", 2)
        field.tensors[f"field.{int(place) + 1}.{rest}"] = tensor
    field.layers += net.layers
    field.add_dense(DenseModule("answer", unit[:, seen:].reshape(width, width - seen, *pixels), None))
    spec: dict[str, Any] = {"format": 1, "span": [0, 1], "input": {"shape": shape}, "field": field.layers}
    if not pixels:
        return spec | {"kind": "flow", "direction": "noise_to_data"}, field.tensors
    head = LayerList("head")  # images are the states of classifiers only
    head.add("mean_pool")
    head.add_dense(DenseModule("logits", np.eye(1, width), None))
    return spec | {"kind": "classifier", "head": head.layers}, field.tensors | head.tensors


def _write_manifest(folder: pathlib.Path) -> None:
    files = []
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        files.append({"name": path.name, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()})
    write_json(folder / "MANIFEST.json", {"format": 1, "files": files})


def _locked(folder: pathlib.Path) -> int:
    """A descriptor that holds the folder's lock, as core/io/file_lock.h does; without one where locks are unknown."""
    import fcntl  # the daemon's systems have it; others only import this package

    descriptor = os.open(folder, os.O_RDONLY)
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def _publish(written: pathlib.Path, methods: pathlib.Path) -> pathlib.Path:
    """Copies a complete generation beside the others, onto the disk, and gives it its number."""
    methods.mkdir(parents=True, exist_ok=True)
    copied = methods / f".tmp-{uuid.uuid4()}"
    copied.mkdir()
    lock = _locked(copied)  # held until the folder has its number: unlocked ones are removed
    try:
        shutil.copytree(written, copied, dirs_exist_ok=True)
        sync_all(copied)
        generation = _take_number(methods, copied)
    except BaseException:
        shutil.rmtree(copied, ignore_errors=True)
        raise
    finally:
        os.close(lock)
    sync(methods)
    return generation


def _take_number(methods: pathlib.Path, copied: pathlib.Path) -> pathlib.Path:
    """Renames the folder to 1 + the highest number ever used, or to the next where another publisher was faster."""
    lock = _locked(methods)
    try:
        number = _highest_used(methods) + 1
        while True:
            try:
                return copied.rename(methods / str(number))
            except OSError:
                if not (methods / str(number)).exists():
                    raise
                number += 1
    finally:
        os.close(lock)


def _highest_used(methods: pathlib.Path) -> int:
    known = [0]
    if (methods / "ACTIVE").exists():
        known.append(int((methods / "ACTIVE").read_text("utf-8")))
    if (methods / "VERDICTS.json").exists():
        known += [one["generation"] for one in json.loads((methods / "VERDICTS.json").read_text("utf-8")).get("verdicts", [])]
    highest = max(known)
    for number in sorted(int(path.name) for path in methods.iterdir() if path.name.isdigit()):
        if number - highest > GENERATION_GAP_MAX:  # named by mistake; it must not end the numbering
            break
        highest = max(highest, number)
    return highest
