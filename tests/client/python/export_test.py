"""Modules of torch become models that answer as the modules do; what the format cannot hold is named."""

import copy
import json
import time

import numpy as np
import pytest

import hyperserve
from hyperserve import local
from hyperserve.exporting import ExportError
from hyperserve.folder import ModelFolderError
from hyperserve.tensor_files import write_safetensors
from torch_nets import (
    Added, Again, Augmenter, Beside, ConcatSquashConv2d, ConcatSquashLinear, DepthCat, Down, Fourier, Functional,
    GalLinear, NeuralODE, OdeNet, RandomWaves, ResidualBlock, ResNetBlock, Scaled, Timed,
    TimedEach, Waves, export, functional, kinds, mlp, nn, torch)

from hyperserve.torch_running import NotExportable  # after torch_nets, which skips where there is no torch


@pytest.mark.parametrize("make, wanted", [
    (lambda: mlp(2, 16, 16, 2, activation=nn.Softplus), ["linear", "softplus"] * 2 + ["linear"]),
    (lambda: mlp(2, 8, 2).double(), ["linear", "tanh", "linear"]),
    (lambda: Timed(first=True), ["depth_cat", "linear", "tanh", "linear"]),
    (lambda: Timed(first=False), ["depth_cat", "linear", "tanh", "linear"]),
    (lambda: nn.Sequential(ResNetBlock(), nn.Linear(2, 2)), ["residual", "relu", "linear"]),
    (lambda: nn.Sequential(ResNetBlock(nn.SiLU()), nn.Linear(2, 2)), ["residual", "silu", "linear"]),
    (lambda: TimedEach(first=True), ["depth_cat", "linear", "gelu"] * 2 + ["depth_cat", "linear"]),
    (lambda: TimedEach(first=False), ["depth_cat", "linear", "gelu"] * 2 + ["depth_cat", "linear"]),
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


@pytest.mark.parametrize("make, wanted", [
    (lambda: nn.Sequential(DepthCat(), nn.Linear(3, 8), nn.Tanh(), DepthCat(), nn.Linear(9, 2)),
     ["depth_cat", "linear", "tanh", "depth_cat", "linear"]),
    (lambda: NeuralODE(nn.Sequential(nn.Linear(2, 4), DepthCat(), nn.Linear(5, 2))), ["linear", "depth_cat", "linear"]),
    (lambda: nn.Sequential(Inside(), nn.Linear(4, 2)), ["depth_cat", "linear", "linear"]),
])
def test_depth_cats_of_torchdyn(make, wanted, tmp_path):
    torch.manual_seed(2)
    module = make()
    assert kinds(export(module, tmp_path / "mine")) == wanted
    assert all(part.t is None for part in module.modules() if isinstance(part, DepthCat))  # as it was


class Inside(nn.Module):
    def __init__(self):
        super().__init__()
        self.depth, self.layer = DepthCat(), nn.Linear(3, 4)

    def forward(self, x):
        return self.layer(self.depth(x))


def test_a_depth_cat_of_another_dimension(tmp_path):
    with pytest.raises(NotExportable, match=r"field.0 \(DepthCat\): it adds the depth to dimension -1"):
        export(nn.Sequential(DepthCat(-1), nn.Linear(3, 2)), tmp_path / "mine")


def test_one_row_is_an_example(tmp_path):
    export(Timed(first=True), tmp_path / "mine", torch.ones(1, 2))


class Almost(nn.Module):
    """Agrees with a composition of its children near the example, or at some depths."""

    def __init__(self, change):
        super().__init__()
        self.a, self.b, self.change = nn.Linear(2, 8), nn.Linear(8, 2), change

    def forward(self, t, x):
        return self.b(self.change(t, self.a(x)))


@pytest.mark.parametrize("change", [
    lambda t, y: y.clamp(-30, 30), lambda t, y: functional.softplus(y + 40) - 40, lambda t, y: functional.hardtanh(y, -25, 50),
    lambda t, y: y + torch.relu(torch.as_tensor(t) - 0.8)],
    ids=["clamp", "softplus", "hardtanh", "late"])
def test_a_composition_that_agrees_on_the_example_only(change, tmp_path):
    torch.manual_seed(2)
    with pytest.raises(NotExportable, match="its answers are none of"):
        export(Almost(change), tmp_path / "mine", torch.full((1, 2), 0.5))


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
    (nn.Sequential(nn.Linear(2, 2), nn.Softsign()), r"field.1 \(Softsign\): the format has no layer"),
    (nn.Sequential(nn.Softsign(), nn.Sequential(nn.Linear(2, 2), nn.Hardswish())),
     r"(?s)field.0 \(Softsign\).*\nfield.1.1 \(Hardswish\)"),
    (nn.Sequential(nn.Linear(2, 2), nn.Upsample(scale_factor=2, mode="bilinear")), r"field.1 \(Upsample\)"),
])
def test_what_the_format_cannot_hold_is_named(module, words, tmp_path):
    with pytest.raises(NotExportable, match=words):
        export(module, tmp_path / "mine")
    assert not (tmp_path / "mine").exists()


@pytest.mark.parametrize("make, words", [
    (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)), r"parametrized \(WeightNorm of weight\).*remove_param"),
    (lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(2, 2)), r"parametrized \(SpectralNorm of weight\)"),
    (lambda: nn.utils.weight_norm(nn.Linear(2, 2)), r"has hooks \(WeightNorm\).*remove_weight_norm"),
    (lambda: nn.utils.spectral_norm(nn.Linear(2, 2)), r"has hooks \(SpectralNorm\)"),
    (lambda: hooked(nn.Linear(2, 2)), r"has hooks \(doubles\)"),
])
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_what_computes_beside_the_forward_is_named(make, words, tmp_path):
    with pytest.raises(NotExportable, match=r"field.0 \(\w*Linear\): it.*" + words):
        export(nn.Sequential(make(), nn.Tanh()), tmp_path / "mine")


def hooked(module):
    def doubles(module, inputs, output):
        return 2 * output

    module.register_forward_hook(doubles)
    return module


@pytest.mark.parametrize("pool, words", [
    (nn.AvgPool2d((2, 3)), r"kernel_size=\(2, 3\)"), (nn.MaxPool2d(2, stride=(1, 2)), r"stride=\(1, 2\)"),
    (nn.MaxPool2d(3, padding=(1, 0)), r"padding=\(1, 0\)"), (nn.AvgPool2d(2, ceil_mode=True), "ceil_mode=True"),
    (nn.AvgPool2d(3, padding=1, count_include_pad=False), "count_include_pad=False"),
    (nn.AvgPool2d(2, divisor_override=3), "divisor_override=3"), (nn.MaxPool2d(2, dilation=2), "dilation=2"),
    (nn.MaxPool2d(2, return_indices=True), "return_indices=True")])
def test_pools_that_the_format_lacks_are_named(pool, words, tmp_path):
    head = nn.Sequential(pool, nn.Flatten(), nn.Linear(9, 3))
    with pytest.raises(NotExportable, match=r"head.0 \(\w+Pool2d\): " + words):
        export(nn.Conv2d(1, 1, 3, padding=1), tmp_path / "mine", torch.rand(4, 1, 6, 6), head=head)


@pytest.mark.parametrize("pool", [
    nn.AvgPool2d((2, 2)), nn.MaxPool2d(2, stride=(2, 2), dilation=(1, 1)), nn.AvgPool2d(2, count_include_pad=False),
    nn.MaxPool2d(3, stride=2, padding=1), nn.AvgPool2d(3, stride=2, padding=(1, 1))])
def test_pools(pool, tmp_path):
    head = nn.Sequential(pool, nn.Flatten(), nn.Linear(9, 3))
    path = export(nn.Conv2d(1, 1, 3, padding=1), tmp_path / "mine", torch.rand(4, 1, 6, 6), head=head)
    assert kinds(path, "head")[0] in ("avg_pool", "max_pool")


@pytest.mark.parametrize("pool, cells", [(nn.AdaptiveAvgPool2d(2), 4), (nn.AdaptiveAvgPool2d((1, None)), 0),
                                         (nn.AdaptiveAvgPool2d(1), 1), (nn.AdaptiveAvgPool2d(4), 0)])
def test_adaptive_pools(pool, cells, tmp_path):
    head = nn.Sequential(pool, nn.Flatten(), nn.Linear(cells or 16, 3)) if cells else pool
    if cells:
        path = export(nn.Conv2d(1, 1, 3, padding=1), tmp_path / "mine", torch.rand(4, 1, 6, 6), head=head)
        assert kinds(path, "head")[0] == "avg_pool"
    else:
        with pytest.raises(NotExportable, match=r"head \(AdaptiveAvgPool2d\)"):
            export(nn.Conv2d(1, 1, 3, padding=1), tmp_path / "mine", torch.rand(4, 1, 6, 6), head=head)


def test_what_is_no_module(tmp_path):
    with pytest.raises(TypeError, match="field: a function; a torch.nn.Module is wanted"):
        export(lambda x: x, tmp_path / "mine")


class Twice(nn.Sequential):
    """A sequence with a forward of its own."""

    def forward(self, x):
        return super().forward(super().forward(x))


@pytest.mark.parametrize("make, wanted", [(lambda: Twice(nn.Linear(2, 2), nn.Tanh()), ["linear", "tanh"] * 2),
                                          (Again, ["linear", "relu"] * 2 + ["linear"])])
def test_parts_are_taken_as_they_are_called(make, wanted, tmp_path):
    assert kinds(export(make(), tmp_path / "mine")) == wanted


@pytest.mark.parametrize("make, wanted", [
    (lambda: Added(Waves(16, sines_first=True), 1000.0), ["linear", "film", "silu", "linear"]),
    (lambda: Added(Waves(16, sines_first=False)), ["linear", "film", "silu", "linear"]),
    (lambda: Added(RandomWaves(16)).double(), ["linear", "film", "silu", "linear"]),
    (Scaled, ["linear", "film", "tanh", "linear"]),
    (lambda: Beside(first=False), ["skip", "linear", "tanh", "linear"]),
    (lambda: Beside(first=True), ["augment", "linear", "tanh", "linear"]),
    (lambda: OdeNet(ConcatSquashLinear), ["linear", "film", "softplus"] * 2 + ["linear", "film"]),
    (lambda: nn.Sequential(nn.Linear(2, 8), nn.Hardtanh(-0.5, 2), nn.Linear(8, 2), nn.ReLU6()), ["linear", "clamp"] * 2),
])
def test_what_the_time_does(make, wanted, tmp_path):
    torch.manual_seed(2)
    assert kinds(export(make(), tmp_path / "mine")) == wanted


def test_galerkin_layers_of_torchdyn(tmp_path):
    torch.manual_seed(2)
    module = NeuralODE(nn.Sequential(DepthCat(), GalLinear(2, 8, Fourier(5)), nn.Tanh(), DepthCat(), GalLinear(8, 2, Fourier(3))))
    module.vf(torch.tensor(0.5), torch.randn(3, 2))  # leaves steps of a gradient behind
    assert kinds(export(module, tmp_path / "mine")) == ["depth_cat", "galerkin_linear", "tanh"] + ["depth_cat", "galerkin_linear"]
    with pytest.raises(NotExportable, match=r"field.1 \(GalLinear\): it expands in Polynomial\(3\)"):
        export(nn.Sequential(DepthCat(), GalLinear(2, 2, type("Polynomial", (Fourier,), {})(3))), tmp_path / "other")


def test_layers_of_images(tmp_path):
    torch.manual_seed(2)
    field = nn.Sequential(Down(), nn.Conv2d(6, 2, 3, padding=1), nn.AvgPool2d(2), nn.Upsample(scale_factor=2))
    path = export(field, tmp_path / "mine", torch.rand(4, 2, 6, 6), head=nn.Sequential(nn.Flatten(), nn.Linear(72, 3)))
    assert kinds(path) == ["skip", "conv2d", "avg_pool", "upsample"]


class SquashedImages(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = ConcatSquashConv2d(2, 4), ConcatSquashConv2d(4, 2)

    def forward(self, t, x):
        return self.b(t, torch.tanh(self.a(t, x)))


def test_concat_squash_of_images(tmp_path):
    torch.manual_seed(2)
    path = export(SquashedImages(), tmp_path / "mine", torch.rand(4, 2, 6, 6), head=nn.Sequential(nn.Flatten(), nn.Linear(72, 3)))
    assert kinds(path) == ["conv2d", "film", "tanh", "conv2d", "film"]


def test_a_forward_that_is_no_composition_of_children(tmp_path):
    class Cube(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = mlp(2, 8, 2)

        def forward(self, t, x):
            return self.net(x**3)

    with pytest.raises(NotExportable, match=r"field \(Cube\): its answers are none of .*net \(Sequential\).*export_package serves any"):
        export(Cube(), tmp_path / "mine")


def test_a_field_that_changes_the_shape(tmp_path):
    with pytest.raises(ValueError, match="keep the shape"):
        export(mlp(2, 8, 3), tmp_path / "mine")


class StateFirst(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x, t):
        return torch.tanh(self.layer(x)) * t


@pytest.mark.parametrize("field, shape, words", [
    (StateFirst(), (4, 2), r"field \(StateFirst\): it fails on rows of shape \(2,\).* forward\(t, x\)"),
    (nn.Sequential(nn.Linear(2, 2)), (4, 3), r"field \(Sequential\): it fails on rows of shape \(3,\).*multiplied")])
def test_a_field_that_fails_on_the_example(field, shape, words, tmp_path):
    with pytest.raises(NotExportable, match=words):
        hyperserve.export(field, tmp_path / "m", example=torch.randn(shape))


def test_a_served_model_that_differs_is_removed(tmp_path, monkeypatch):
    def write(path, tensors):
        write_safetensors(path, {name: tensor * np.float32(1.00001) for name, tensor in tensors.items()})

    monkeypatch.setattr("hyperserve.folder.write_safetensors", write)
    with pytest.raises(ExportError, match="the field at depth 0: the served model differs from the module by 1.*e-05"):
        export(mlp(2, 8, 2), tmp_path / "new/models/mine")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_there_is_left_alone(tmp_path):
    (tmp_path / "mine").mkdir()
    with pytest.raises(FileExistsError, match="a new folder is wanted"):
        export(mlp(2, 8, 2), tmp_path / "mine")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def script(path, *lines):
    path.write_text("\n".join(["#!/bin/sh", *lines]) + "\n")
    path.chmod(0o755)
    return path


def test_a_check_that_does_not_end(tmp_path, monkeypatch):
    monkeypatch.setattr("hyperserve.folder.CHECK_SECONDS_MAX", 0.5)
    with pytest.raises(ModelFolderError, match="did not end within 0.5 s"):
        hyperserve.export(mlp(2, 8, 2), tmp_path / "mine", example=torch.randn(5, 2),
                          program=script(tmp_path / "sleeps", "exec sleep 60"))


def test_a_daemon_that_does_not_stop_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr("hyperserve.local.STOP_SECONDS_MAX", 0.5)
    stubborn = script(tmp_path / "stubborn", "trap '' TERM", 'for word; do case $word in --ports_file=*) ports=${word#*=};; esac; done',
                      """echo '{"address": "x"}' > $ports""", "while :; do sleep 0.1; done")
    begin = time.monotonic()
    with local.daemon(tmp_path, stubborn) as address:
        assert address == "x"
    assert time.monotonic() - begin < 20


def test_the_caller_keeps_its_module(tmp_path):
    module = mlp(2, 8, 2).train()
    before = copy.deepcopy(module.state_dict())
    export(module, tmp_path / "mine")
    assert module.training and all((before[name] == value).all() for name, value in module.state_dict().items())


def test_tensors_of_torch_are_taken_by_the_client(daemon):
    with hyperserve.Client(daemon.address) as client:
        points = torch.tensor([[0.5, -1.0], [2.0, 0.25]], requires_grad=True)
        found = client.log_prob("pinwheel", points).log_prob
        np.testing.assert_array_equal(found, client.log_prob("pinwheel", [[0.5, -1.0], [2.0, 0.25]]).log_prob)
        client.log_prob("pinwheel", points.bfloat16())


@pytest.mark.parametrize("more, words", [
    ({"kind": "trajectory"}, "a trajectory needs save_at="),
    ({"save_at": [0.5]}, "a flow has none"),
])
def test_depths_are_for_trajectories(more, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        export(nn.Linear(2, 2), tmp_path / "mine", **more)
