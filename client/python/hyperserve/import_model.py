"""Writes a model folder from a public state dict, without torch and without running code of the file.

    python -m hyperserve.import_model gaussian_to_moons.safetensors models/moons --layout torchcfm

Reads safetensors and what torch.save writes. Then `hyperserve --check` reads the folder; it is removed if it does not fit.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sys

from hyperserve.folder import ModelFolderError, staged_model
from hyperserve.layers import LayoutError
from hyperserve.layouts import LAYOUTS, Choices
from hyperserve.layouts.sequences import copies, net_of
from hyperserve.pickles import TensorFileError
from hyperserve.tensor_files import read_tensors


def import_model(
    file: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    layout: str,
    choices: Choices = Choices(),
    program: str | os.PathLike[str] | None = None,
) -> pathlib.Path:
    """The folder, which is new, of a state dict in `file`. `layout` is one of hyperserve.layouts.LAYOUTS.

    TensorFileError says what is wrong with the file, LayoutError which tensors do not have the layout, ModelFolderError what
    `hyperserve --check` says, FileExistsError and FileNotFoundError what is there and what is not.
    """
    tensors = read_tensors(file)
    try:
        tensors = net_of(tensors, choices.part)
        imported = LAYOUTS[layout](tensors, choices)
    except LayoutError as error:
        several = copies(tensors)
        words = f"; it holds several nets, {' and '.join(several)}: choose one (--part)" if several else ""
        raise LayoutError(f"{os.fspath(file)}: not of layout {layout}: {error}{words}") from None
    with staged_model(folder, imported.spec, imported.tensors, program):
        return pathlib.Path(folder)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m hyperserve.import_model", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("file", help="the state dict: safetensors, or what torch.save wrote")
    parser.add_argument("folder", help="the model folder to write; it must not exist")
    parser.add_argument("--layout", required=True, choices=LAYOUTS)
    parser.add_argument("--activation", help="between the field's layers, instead of the layout's: one, or a,b,c")
    parser.add_argument("--time", choices=("first", "last", "none"), help="its place among the inputs of the field")
    parser.add_argument("--direction", choices=("noise_to_data", "data_to_noise"), help="which way the field runs")
    parser.add_argument("--span", type=float, nargs=2, metavar=("S0", "S1"), help="default: the layout's, mostly 0 1")
    parser.add_argument("--part", help="of a checkpoint with several nets: the one to take, as in ema_model")
    parser.add_argument("--condition", type=int, default=0, metavar="FEATURES", help="of a conditional flow")
    parser.add_argument("--inputs", help="order of the first layer's inputs: state x, condition c, time t; default: t,x,c or "
                        "x,c,t, as the time stands, or x,c")
    parser.add_argument("--none", type=float, nargs="+", default=(), help="the condition that stands for none")
    parser.add_argument("--hyperserve", help="the daemon's program, for --check; default: HYPERSERVE_BINARY or the PATH")
    given = parser.parse_args(words)
    try:
        choices = Choices(
            activations=given.activation.split(",") if given.activation else None,
            time=given.time,
            direction=given.direction,
            span=(given.span[0], given.span[1]) if given.span else None,
            part=given.part,
            condition=given.condition,
            inputs=given.inputs,
            none=given.none,
        )
        folder = import_model(given.file, given.folder, layout=given.layout, choices=choices, program=given.hyperserve)
    except (TensorFileError, LayoutError, ModelFolderError, OSError) as error:
        print(f"import_model: {error}", file=sys.stderr)
        return 1
    print(f"{folder}: everything fits")
    return 0


if __name__ == "__main__":
    sys.exit(main())
