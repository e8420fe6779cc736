"""Writes folders of a model repository: complete, checked by `hyperserve --check`, on disk, and then under their names."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import types
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from hyperserve.arrays import Array
from hyperserve.tensor_files import write_safetensors

CHECK_SECONDS_MAX = 600.0  # it reads up to 4 GiB of weights


class ModelFolderError(ValueError):
    """The folder that was written does not pass the check. The message holds its lines."""


def find_program(program: str | os.PathLike[str] | None) -> str:
    """The daemon's program: the given one, that of HYPERSERVE_BINARY, or `hyperserve` on the PATH. FileNotFoundError."""
    named = program or os.environ.get("HYPERSERVE_BINARY") or "hyperserve"
    found = shutil.which(named)
    if found is None:
        raise FileNotFoundError(f"no program {named}; name it (build/release/bin/hyperserve) or set HYPERSERVE_BINARY")
    return found


def check(path: pathlib.Path, program: str | os.PathLike[str] | None) -> None:
    """ModelFolderError with everything that `hyperserve --check` says of a model folder, or that it does not end."""
    try:
        done = subprocess.run(
            [find_program(program), f"--check={path}"], capture_output=True, text=True, timeout=CHECK_SECONDS_MAX
        )
    except subprocess.TimeoutExpired:
        raise ModelFolderError(f"{path}: hyperserve --check did not end within {CHECK_SECONDS_MAX:g} s") from None
    if done.returncode != 0:
        words = f"{done.stdout}{done.stderr}".replace(f"{path.parent}{os.sep}", "")  # a place that is gone when they are read
        raise ModelFolderError(f"{path.name} does not fit:\n{words}".strip())


def write_json(path: pathlib.Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n", "utf-8")


def sync(path: pathlib.Path) -> None:
    """Puts a file, or the names in a folder, on disk."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def sync_all(folder: pathlib.Path) -> None:
    """A folder and its files."""
    for path in (*folder.iterdir(), folder):
        sync(path)


@contextlib.contextmanager
def staged_model(
    folder: str | os.PathLike[str],
    spec: Mapping[str, Any],
    tensors: Mapping[str, Array],
    program: str | os.PathLike[str] | None,
    others: Mapping[str, bytes] = types.MappingProxyType({}),
) -> Iterator[pathlib.Path]:
    """Writes model.json, weights.safetensors and `others` by name, checks them, and yields them as the one model of a repository that no daemon
    sees. They take the name `folder`, which is new, when the block ends; if it fails, nothing of them is left."""
    path = pathlib.Path(folder).absolute()
    if path.exists():
        raise FileExistsError(f"{path} exists; a new folder is wanted")
    made = [parent for parent in path.parents if not parent.exists()]
    repository = path.parent / f".tmp-{uuid.uuid4()}"
    staged = repository / path.name
    staged.mkdir(parents=True)
    try:
        write_json(staged / "model.json", spec)
        write_safetensors(staged / "weights.safetensors", tensors)
        for name, content in others.items():
            (staged / name).write_bytes(content)
        check(staged, program)
        yield staged
        sync_all(staged)
        staged.rename(path)
        sync(path.parent)
    except BaseException:
        shutil.rmtree(repository)
        with contextlib.suppress(OSError):  # somebody else uses it
            for parent in made:
                parent.rmdir()
        raise
    repository.rmdir()
