"""Writes a trained correction g, a module of torch, as the next generation of a model in a folder."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hyperserve.arrays import as_numpy
from hyperserve.folder import ModelFolderError, find_program
from hyperserve.layers import LayerList
from hyperserve.tensor_files import write_safetensors


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

    `example` holds rows of what the net sees: `inputs`, concatenated. `probe` holds 16 to 256 rows on which the gate
    measures: inputs of a classifier, starts of the solve for a flow. `steps` are the K at which it claims to win.
    """
    import torch

    from hyperserve.torch_modules import Converter

    folder, checker = pathlib.Path(model), find_program(program)
    layers = LayerList("net")
    with torch.no_grad():
        x = torch.as_tensor(example).detach().cpu()
        Converter(layers, torch.float32).add(net.cpu().eval(), "net", x, torch.zeros(len(x)))
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
    methods = folder / "hypersolvers" / method
    written = methods / f".tmp-{uuid.uuid4()}"
    written.mkdir(parents=True)
    lock = _locked(written)  # held until the folder has its number: unlocked ones are removed
    try:
        (written / "hypersolver.json").write_text(json.dumps(spec, indent=1) + "\n", "utf-8")
        write_safetensors(written / "weights.safetensors", layers.tensors)
        write_safetensors(written / "probe.safetensors", {"x": rows if rows.dtype == np.uint8 else rows.astype(np.float32)})
        _write_manifest(written)
        generation = _take_number(methods, written)
    except BaseException:
        shutil.rmtree(written)
        raise
    finally:
        os.close(lock)
    done = subprocess.run([checker, f"--check={folder}"], capture_output=True, text=True)
    if done.returncode != 0:
        shutil.rmtree(generation)
        raise ModelFolderError(f"{folder} does not fit with {generation.name}:\n{done.stdout}{done.stderr}".strip())
    return generation


def base_digest(model: pathlib.Path) -> str:
    """The SHA-256 of the raw SHA-256 of model.json followed by that of weights.safetensors."""
    parts = (hashlib.sha256((model / name).read_bytes()).digest() for name in ("model.json", "weights.safetensors"))
    return hashlib.sha256(b"".join(parts)).hexdigest()


def _write_manifest(folder: pathlib.Path) -> None:
    files = []
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        files.append({"name": path.name, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()})
    (folder / "MANIFEST.json").write_text(json.dumps({"format": 1, "files": files}, indent=1) + "\n", "utf-8")


def _locked(folder: pathlib.Path) -> int:
    """A descriptor that holds the folder's lock, as core/io/file_lock.h does; without one where locks are unknown."""
    import fcntl  # the daemon's systems have it; others only import this package

    descriptor = os.open(folder, os.O_RDONLY)
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def _take_number(methods: pathlib.Path, written: pathlib.Path) -> pathlib.Path:
    """Renames the folder to 1 + the highest number ever used, or to the next where another publisher was faster."""
    lock = _locked(methods)
    try:
        number = _highest_used(methods) + 1
        while True:
            try:
                return written.rename(methods / str(number))
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
