"""Modules of torch become models that answer as the modules do; what the format cannot hold is named."""

import json
import shutil
import time

import numpy as np
import pytest

try:
    import torch
    from torch import nn
    from torch.nn import functional
except (ImportError, OSError) as error:
    pytest.skip(f"no PyTorch: {error}", allow_module_level=True)

import hyperserve
from conftest import BIN, ROOT, SOON, Daemon
from hyperserve.exporting import ExportError
from hyperserve.folder import ModelFolderError
from hyperserve.tensor_files import read_tensors
from hyperserve.torch_modules import NotExportable

PROGRAM = BIN / "hyperserve"
RINGS = int((ROOT / "models/rings/hypersolvers/heun/ACTIVE").read_text())  # the generation that is shipped


def mlp(*widths, activation=nn.Tanh):
    layers = []
    for width, out in zip(widths, widths[1:]):
        layers += [nn.Linear(width, out), activation()]
    return nn.Sequential(*layers[:-1])


class Timed(nn.Module):
    """As torchdiffeq calls it."""

    def __init__(self, first):
        super().__init__()
        self.net, self.first = mlp(3, 16, 2), first

    def forward(self, t, x):
        column = torch.ones_like(x[:, :1]) * t
        return self.net(torch.cat([column, x] if self.first else [x, column], 1))


class Functional(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(2, 8), nn.Linear(8, 8), nn.Linear(8, 2)

    def forward(self, x):
        return self.c(functional.silu(self.b(functional.silu(self.a(x)))))


class ResidualBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = mlp(2, 8, 2)

    def forward(self, x):
        return x + self.layers(x)


class ConcatLinear(nn.Module):
    """As FFJORD has it."""

    def __init__(self, width, out):
        super().__init__()
        self._layer = nn.Linear(width + 1, out)

    def forward(self, t, x):
        return self._layer(torch.cat([torch.ones_like(x[:, :1]) * t, x], 1))


class OdeNet(nn.Module):
    """As FFJORD has it."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([ConcatLinear(2, 8), ConcatLinear(8, 8), ConcatLinear(8, 2)])
        self.activation_fns = nn.ModuleList([nn.Softplus(), nn.Softplus()])

    def forward(self, t, x):
        for i, layer in enumerate(self.layers):
            x = layer(t, x)
            if i < 2:
                x = self.activation_fns[i](x)
        return x


class DepthCat(nn.Module):
    """As torchdyn has it."""

    def __init__(self, idx_cat=1):
        super().__init__()
        self.idx_cat, self.t = idx_cat, None


class DEFunc(nn.Module):
    def __init__(self, vf):
        super().__init__()
        self.vf = vf

    def forward(self, t, x):
        for module in self.vf:
            x = torch.cat([x, torch.ones_like(x[:, :1]) * t], 1) if isinstance(module, DepthCat) else module(x)
        return x


class NeuralODE(nn.Module):
    """As torchdyn nests it."""

    def __init__(self, net):
        super().__init__()
        self.vf = DEFunc(net)


class Augmenter(nn.Module):
    def __init__(self, augment_func):
        super().__init__()
        self.augment_func = augment_func

    def forward(self, x):
        return torch.cat([self.augment_func(x), x], 1)


class ConcatSquashLinear(nn.Module):
    def forward(self, t, x):
        return x


def export(module, folder, example=None, **words):
    torch.manual_seed(3)
    return hyperserve.export(module, folder, example=torch.randn(5, 2) if example is None else example, program=PROGRAM, **words)


def kinds(path, part="field"):
    return [next(iter(layer)) for layer in json.loads((path / "model.json").read_text())[part]]


@pytest.mark.parametrize("make, wanted", [
    (lambda: mlp(2, 16, 16, 2, activation=nn.Softplus), ["linear", "softplus"] * 2 + ["linear"]),
    (lambda: mlp(2, 8, 2).double(), ["linear", "tanh", "linear"]),
    (lambda: Timed(first=True), ["depth_cat", "linear", "tanh", "linear"]),
    (lambda: Timed(first=False), ["depth_cat", "linear", "tanh", "linear"]),
    (Functional, ["linear", "silu"] * 2 + ["linear"]),
    (lambda: nn.Sequential(ResidualBlock(), nn.Linear(2, 2)), ["residual", "linear"]),
    (OdeNet, ["depth_cat", "linear", "softplus"] * 2 + ["depth_cat", "linear"]),
    (lambda: NeuralODE(nn.Sequential(nn.Linear(2, 8), nn.PReLU(), nn.LayerNorm(8), nn.Dropout(), nn.Linear(8, 2))),
     ["linear", "prelu", "layer_norm", "linear"]),
])
def test_flows(make, wanted, tmp_path):
    torch.manual_seed(2)
    # export itself compares the served answers with the module's in float64.
    assert kinds(export(make(), tmp_path / "mine")) == wanted


def test_time_has_its_place(tmp_path):
    for first in (True, False):
        path = export(Timed(first), tmp_path / f"first_{first}".lower())
        assert json.loads((path / "model.json").read_text())["field"][0] == {"depth_cat": {"first": True} if first else {}}


def test_a_classifier_of_torchdyn(tmp_path):
    field = nn.Sequential(nn.Conv2d(4, 5, 3, padding=1), nn.Softplus(), nn.Conv2d(5, 4, 3, padding="same"))
    module = nn.Sequential(nn.BatchNorm2d(1), Augmenter(nn.Conv2d(1, 3, 3, padding=1)), NeuralODE(nn.Sequential(*field)),
                           nn.AvgPool2d(6), nn.Flatten(), nn.Linear(4, 3))
    module[0].running_mean.fill_(0.3)
    path = export(module, tmp_path / "images", torch.rand(4, 1, 6, 6), labels=["a", "b", "c"])
    assert kinds(path, "stem") == ["batch_norm", "augment"] and kinds(path, "head") == ["avg_pool", "flatten", "linear"]
    assert kinds(path) == ["conv2d", "softplus", "conv2d"]


@pytest.mark.parametrize("module, words", [
    (nn.Sequential(nn.Linear(2, 2), nn.Hardtanh()), r"field.1 \(Hardtanh\): the format has no layer"),
    (nn.Sequential(ConcatSquashLinear()), r"field.0 \(ConcatSquashLinear\): the format has no concat-squash layer yet"),
    (nn.Sequential(nn.Hardtanh(), nn.Sequential(nn.Linear(2, 2), nn.Hardswish())),
     r"(?s)field.0 \(Hardtanh\).*\nfield.1.1 \(Hardswish\)"),
])
def test_what_the_format_cannot_hold_is_named(module, words, tmp_path):
    with pytest.raises(NotExportable, match=words):
        export(module, tmp_path / "mine")
    assert not (tmp_path / "mine").exists()


def test_a_forward_that_is_no_composition_of_children(tmp_path):
    class Cube(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = mlp(2, 8, 2)

        def forward(self, t, x):
            return self.net(x**3)

    with pytest.raises(NotExportable, match=r"field \(Cube\): its answers are none of .*net \(Sequential\)"):
        export(Cube(), tmp_path / "mine")


def test_a_field_that_changes_the_shape(tmp_path):
    with pytest.raises(ValueError, match="keep the shape"):
        export(mlp(2, 8, 3), tmp_path / "mine")


def test_a_served_model_that_differs_is_removed(tmp_path, monkeypatch):
    monkeypatch.setattr("hyperserve.exporting._served", lambda path, x, z, *rest: {"field": z})
    with pytest.raises(ExportError, match="field: the served model differs"):
        export(mlp(2, 8, 2), tmp_path / "mine")
    assert not (tmp_path / "mine").exists()


def test_tensors_of_torch_are_taken_by_the_client(daemon):
    with hyperserve.Client(daemon.address) as client:
        points = torch.tensor([[0.5, -1.0], [2.0, 0.25]], requires_grad=True)
        found = client.log_prob("pinwheel", points).log_prob
        np.testing.assert_array_equal(found, client.log_prob("pinwheel", [[0.5, -1.0], [2.0, 0.25]]).log_prob)
        client.log_prob("pinwheel", points.bfloat16())


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
    words |= {"example": torch.randn(3, 5), "probe": read_tensors(generation / "probe.safetensors")["x"], "program": PROGRAM}
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


def test_a_correction_that_does_not_fit_is_removed(tmp_path):
    net, words, _ = rings_correction()
    shutil.copytree(ROOT / "models/rings", tmp_path / "rings")
    with pytest.raises(ModelFolderError, match="probe"):
        hyperserve.export_correction(net, tmp_path / "rings", **(words | {"probe": np.zeros((3, 2))}))
    left, shipped = (sorted(path.name for path in (root / "rings/hypersolvers/heun").iterdir())
                     for root in (tmp_path, ROOT / "models"))
    assert left == shipped
