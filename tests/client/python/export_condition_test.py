"""Conditional fields, regressors and trajectories become models that answer as the modules do."""

import json

import numpy as np
import pytest

import hyperserve
from hyperserve import local
from torch_nets import PROGRAM, export, functional, kinds, mlp, nn, torch

from hyperserve.torch_running import NotExportable  # after torch_nets, which skips where there is no torch

CONDITION = torch.linspace(-1, 2, 24).reshape(8, 3)


def column(t, x):
    return torch.ones_like(x[:, :1]) * t


class Concatenated(nn.Module):
    """As TorchCFM and sbi write them: everything side by side."""

    def __init__(self, order):
        super().__init__()
        self.order, self.net = order, mlp(2 + 3 * ("c" in order) + ("t" in order), 16, 2)

    def forward(self, t, x, c):
        return self.net(torch.cat([{"x": x, "c": c, "t": column(t, x)}[name] for name in self.order], 1))


@pytest.mark.parametrize("order", ["xc", "cx", "xct", "xtc", "txc", "cxt", "ctx", "tcx"])
def test_a_condition_among_the_inputs(order, tmp_path):
    torch.manual_seed(2)
    path = export(Concatenated(order), tmp_path / "mine", condition=CONDITION)  # compares with the module in float64
    spec = json.loads((path / "model.json").read_text())
    assert spec["condition"] == {"shape": [3]}
    assert sorted(kinds(path)[: len(order) - 1]) == ["condition_cat", "depth_cat"][: len(order) - 1]


class Film(nn.Module):
    """Scales and shifts of a hidden layer, by a net of the condition, or of the time and the condition."""

    def __init__(self, sees):
        super().__init__()
        self.sees, self.a, self.b = sees, nn.Linear(2, 16), nn.Linear(16, 2)
        self.net = nn.Sequential(nn.Linear(3 if sees == "c" else 4, 8), nn.SiLU(), nn.Linear(8, 32))

    def forward(self, t, x, c):
        t = torch.ones_like(c[:, :1]) * t
        seen = {"c": c, "tc": torch.cat([t, c], 1), "ct": torch.cat([c, t], 1)}[self.sees]
        scale, shift = self.net(seen).chunk(2, 1)
        return self.b(functional.silu((1 + scale) * self.a(x) + shift))


@pytest.mark.parametrize("sees, layer", [("c", "condition_film"), ("tc", "film"), ("ct", "film")])
def test_film_by_the_condition(sees, layer, tmp_path):
    torch.manual_seed(2)
    path = export(Film(sees), tmp_path / "mine", condition=CONDITION, none=[0, 0, 0])
    assert kinds(path) == ["linear", layer, "silu", "linear"]
    assert json.loads((path / "model.json").read_text())["condition"] == {"shape": [3], "none": [0, 0, 0]}


class Embedded(nn.Module):
    """The time beside the state, and an embedding of the condition added to a hidden layer."""

    def __init__(self):
        super().__init__()
        self.embed, self.a, self.b = nn.Linear(3, 16), nn.Linear(3, 16), nn.Linear(16, 2)

    def forward(self, t, x, c):
        return self.b(torch.tanh(self.a(torch.cat([x, column(t, x)], 1)) + self.embed(c)))


def test_an_embedding_of_the_condition_is_added(tmp_path):
    torch.manual_seed(2)
    assert kinds(export(Embedded(), tmp_path / "mine", condition=CONDITION)) == [
        "depth_cat", "linear", "condition_film", "tanh", "linear"]


def test_a_served_conditional_flow_answers_as_its_module(tmp_path):
    torch.manual_seed(3)
    field = Film("c").double()
    path = export(field, tmp_path / "models" / "mine", torch.randn(8, 2).double(), condition=CONDITION.double())
    x, c = np.random.default_rng(1).standard_normal((5, 2)), np.random.default_rng(2).standard_normal((5, 3))
    with local.daemon(path.parent, PROGRAM) as address, hyperserve.Client(address) as client:
        end = client.solve("mine", state=x, condition=c, plan="euler:4/double").state
    z = torch.from_numpy(x)
    with torch.no_grad():
        for step in range(4):
            z = z + field(torch.tensor(step / 4), z, torch.from_numpy(c)) / 4
    np.testing.assert_allclose(end, z.numpy(), atol=1e-9)


class Twisted(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 2)

    def forward(self, t, x, c):
        return self.layer(torch.cat([x, c * c], 1))


def test_what_a_condition_cannot_do_is_named(tmp_path):
    with pytest.raises(NotExportable, match=r"field \(Twisted\): its answers are none of the compositions"):
        export(Twisted(), tmp_path / "mine", condition=CONDITION)
    with pytest.raises(NotExportable, match=r"takes more than the time and the state.*condition=, an example"):
        export(Twisted(), tmp_path / "mine")
    with pytest.raises(NotExportable, match=r"a condition is given, and its forward is not forward\(t, x, condition\)"):
        export(mlp(2, 8, 2), tmp_path / "mine", condition=CONDITION)


def test_a_regressor_and_a_trajectory(tmp_path):
    torch.manual_seed(4)
    numbers = export(mlp(4, 8, 4), tmp_path / "models" / "numbers", torch.randn(8, 2), stem=nn.Linear(2, 4), head=nn.Linear(4, 3),
                     kind="regressor", labels=["a", "b", "c"])
    path = export(mlp(2, 8, 2), tmp_path / "models" / "path", torch.randn(8, 2), kind="trajectory", save_at=[0.5, 1])
    assert json.loads((numbers / "model.json").read_text())["kind"] == "regressor"
    with local.daemon(path.parent, PROGRAM) as address, hyperserve.Client(address) as client:
        assert client.predict("numbers", np.zeros((5, 2))).outputs.shape == (5, 3)
        assert client.predict("path", np.zeros((5, 2))).states.shape == (5, 2, 2)
    for wrong in ({"kind": "regressor"}, {"kind": "trajectory"}, {"kind": "flow", "save_at": [1]}, {"kind": "oracle"}):
        with pytest.raises(ValueError):
            export(mlp(2, 8, 2), tmp_path / "wrong", **wrong)
