"""Corrections of torch become generations that pass the gate; of one that does not fit nothing is left."""

import json
import shutil
import time

import numpy as np
import pytest

import hyperserve
from conftest import ROOT, SOON, Daemon
from hyperserve import corrections
from hyperserve.exporting import ExportError
from hyperserve.folder import ModelFolderError
from hyperserve.tensor_files import read_tensors
from torch_nets import PROGRAM, DepthCat, export, nn, torch

RINGS = int((ROOT / "models/rings/hypersolvers/heun/ACTIVE").read_text())  # the generation that is shipped


def rings_correction():
    """The shipped g as a module, and what else its generation says."""
    generation = ROOT / f"models/rings/hypersolvers/heun/{RINGS}"
    spec, tensors = json.loads((generation / "hypersolver.json").read_text()), read_tensors(generation / "weights.safetensors")
    layers = []
    for layer in spec["net"]:
        ((kind, fields),) = layer.items()
        layers.append(nn.Linear(fields["in"], fields["out"]) if kind == "linear" else nn.PReLU(fields["slopes"]))
    net = nn.Sequential(*layers)
    net.load_state_dict({name.removeprefix("net."): torch.tensor(tensor) for name, tensor in tensors.items()})
    words = {name: spec[name] for name in ("method", "direction", "eps", "steps", "inputs")}
    words |= {"example": torch.randn(3, net[0].in_features), "probe": read_tensors(generation / "probe.safetensors")["x"], "program": PROGRAM}
    return net, words, tensors


def test_a_correction_passes_the_gate(tmp_path):
    net, words, tensors = rings_correction()
    shutil.copytree(ROOT / "models/rings", tmp_path / "models/rings")
    path = hyperserve.export_correction(net, tmp_path / "models/rings", provenance={"made": "by this test"}, **words)
    assert path.parent == tmp_path / "models/rings/hypersolvers/heun" and int(path.name) > RINGS
    found = read_tensors(path / "weights.safetensors")
    assert set(found) == set(tensors) and all((found[name] == tensors[name]).all() for name in tensors)
    daemon = Daemon(tmp_path, tmp_path / "models", copy=False)
    with hyperserve.Client(daemon.address) as client:
        end = time.monotonic() + SOON
        while {"made": "by this test"} not in [one.provenance for one in client.model("rings").model.corrections]:
            assert time.monotonic() < end, daemon.log.read_text()
            time.sleep(0.05)
    daemon.stop()


def files(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.fixture
def rings(tmp_path):
    return shutil.copytree(ROOT / "models/rings", tmp_path / "rings")


@pytest.mark.parametrize("shipped", [True, False])
@pytest.mark.parametrize("change, error, words", [
    ({"probe": np.zeros((3, 2))}, ModelFolderError, "probe"),
    ({"inputs": ("state", "step")}, ModelFolderError, "net"),
    ({"example": torch.zeros(3)}, ValueError, "rows of inputs wanted"),
    ({"method": "../heun"}, ValueError, "the name of a folder"),
    ({"program": "nowhere"}, FileNotFoundError, "no program nowhere"),
])
def test_of_a_correction_that_does_not_fit_nothing_is_left(rings, change, error, words, shipped):
    if not shipped:
        shutil.rmtree(rings / "hypersolvers")
    net, given, _ = rings_correction()
    before = files(rings.parent)
    with pytest.raises(error, match=words):
        hyperserve.export_correction(net, rings, **(given | change))
    assert files(rings.parent) == before


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_correction_is_copied_and_not_changed(rings, dtype):
    net, given, _ = rings_correction()
    net = net.to(dtype).train()
    path = hyperserve.export_correction(net, rings, **(given | {"example": given["example"].double()}))
    assert net.training and {tensor.dtype for tensor in net.parameters()} == {dtype}
    assert {str(tensor.dtype) for tensor in read_tensors(path / "weights.safetensors").values()} == {str(dtype).split(".")[1]}


def test_a_correction_is_compared_with_its_net(rings, monkeypatch):
    def converted(net, example):
        layers = corrections_converted(net, example)
        layers.tensors["net.0.bias"] = layers.tensors["net.0.bias"] + np.float32(1e-4)
        return layers

    corrections_converted = corrections._converted
    monkeypatch.setattr(corrections, "_converted", converted)
    net, given, _ = rings_correction()
    before = files(rings.parent)
    with pytest.raises(ExportError, match="the served model differs from the module"):
        hyperserve.export_correction(net, rings, **given)
    assert files(rings.parent) == before


class ImageCorrection(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(5, 4, 3, padding=1), nn.Tanh(), DepthCat(), nn.Conv2d(5, 2, 3, padding=1))

    def forward(self, x):
        return self.net(x)


def test_a_correction_of_images_that_sees_the_depth(tmp_path):
    model = export(nn.Conv2d(2, 2, 3, padding=1), tmp_path / "images", torch.rand(4, 2, 6, 6),
                   head=nn.Sequential(nn.Flatten(), nn.Linear(72, 3)))
    path = hyperserve.export_correction(
        ImageCorrection(), model, example=torch.randn(3, 5, 6, 6), probe=torch.rand(16, 2, 6, 6), method="euler",
        direction="forward", eps=(0.5, 1), steps=[1, 2], program=PROGRAM)
    assert path.name == "1" and files(model) > {"hypersolvers/euler/1/MANIFEST.json", "model.json"}
