"""Writes a model folder, and has `hyperserve --check` read it."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
from collections.abc import Mapping
from typing import Any

from hyperserve.arrays import Array
from hyperserve.tensor_files import write_safetensors


class ModelFolderError(ValueError):
    """The folder that was written does not pass the check. The message holds its lines."""


def find_program(program: str | os.PathLike[str] | None) -> str:
    """The daemon's program: the given one, that of HYPERSERVE_BINARY, or `hyperserve` on the PATH."""
    named = program or os.environ.get("HYPERSERVE_BINARY") or "hyperserve"
    found = shutil.which(named)
    if found is None:
        raise FileNotFoundError(f"no program {named}; name it (build/release/bin/hyperserve) or set HYPERSERVE_BINARY")
    return found


def write_model(
    folder: str | os.PathLike[str],
    spec: Mapping[str, Any],
    tensors: Mapping[str, Array],
    program: str | os.PathLike[str] | None,
) -> pathlib.Path:
    """Writes model.json and weights.safetensors into a new folder and checks it. A folder that does not fit is removed."""
    path = pathlib.Path(folder)
    checker = find_program(program)
    path.mkdir(parents=True)
    try:
        (path / "model.json").write_text(json.dumps(spec, indent=1) + "\n", "utf-8")
        write_safetensors(path / "weights.safetensors", tensors)
        done = subprocess.run([checker, f"--check={path}"], capture_output=True, text=True)
        if done.returncode != 0:
            raise ModelFolderError(f"{path} does not fit:\n{done.stdout}{done.stderr}".strip())
    except BaseException:
        shutil.rmtree(path)
        raise
    return path
