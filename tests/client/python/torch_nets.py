"""Modules of torch as users and libraries write them, and their export. What imports this is skipped where torch cannot be."""

import json

import numpy as np
import pytest

try:
    import torch
    from torch import nn
    from torch.nn import functional
except (ImportError, OSError) as error:
    pytest.skip(f"no PyTorch: {error}", allow_module_level=True)

import hyperserve
from conftest import BIN

PROGRAM = BIN / "hyperserve"


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


class TimedEach(nn.Module):
    """The time beside what every layer sees."""

    def __init__(self, first):
        super().__init__()
        self.layers, self.first = nn.ModuleList([nn.Linear(3, 16), nn.Linear(17, 16), nn.Linear(17, 2)]), first

    def forward(self, t, x):
        for place, layer in enumerate(self.layers):
            column = t.expand(len(x), 1)
            x = layer(torch.cat([column, x] if self.first else [x, column], 1))
            x = functional.gelu(x) if place < 2 else x
        return x


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


class ResNetBlock(nn.Module):
    """An activation of the sum, of torch.nn or as a function."""

    def __init__(self, act=None):
        super().__init__()
        self.a, self.b = nn.Linear(2, 8), nn.Linear(8, 2)
        if act is not None:
            self.act = act
        self.call = functional.relu if act is None else act

    def forward(self, x):
        return self.call(x + self.b(self.call(self.a(x))))


class ConcatLinear(nn.Module):
    """As FFJORD has it."""

    def __init__(self, width, out):
        super().__init__()
        self._layer = nn.Linear(width + 1, out)

    def forward(self, t, x):
        return self._layer(torch.cat([torch.ones_like(x[:, :1]) * t, x], 1))


class OdeNet(nn.Module):
    """As FFJORD has it."""

    def __init__(self, layer=ConcatLinear):
        super().__init__()
        self.layers = nn.ModuleList([layer(2, 8), layer(8, 8), layer(8, 2)])
        self.activation_fns = nn.ModuleList([nn.Softplus(), nn.Softplus()])

    def forward(self, t, x):
        for i, layer in enumerate(self.layers):
            x = layer(t, x)
            if i < 2:
                x = self.activation_fns[i](x)
        return x


class DepthCat(nn.Module):
    """As torchdyn has it: it knows no depth before a solver tells it."""

    def __init__(self, idx_cat=1):
        super().__init__()
        self.idx_cat, self.t = idx_cat, None

    def forward(self, x):
        shape = list(x.shape)
        shape[self.idx_cat] = 1
        return torch.cat([x, self.t * torch.ones(shape).to(x)], self.idx_cat)


class DEFunc(nn.Module):
    def __init__(self, vf):
        super().__init__()
        self.vf = vf

    def forward(self, t, x, args={}):
        for _, module in self.vf.named_modules():
            if hasattr(module, "t"):
                module.t = t
        return self.vf(x)


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


class Fourier(nn.Module):
    """As torchdyn has it, and the layer below."""

    def __init__(self, deg):
        super().__init__()
        self.deg, self.n_eig = deg, 2

    def forward(self, n_range, s):
        return [torch.cos(s * n_range), torch.sin(s * n_range)]


class GalLinear(nn.Module):
    def __init__(self, width, out, expfunc):
        super().__init__()
        self.dilation, self.shift = nn.Parameter(torch.ones(1) * 1.25), nn.Parameter(torch.ones(1) * 0.2)
        self.in_features, self.out_features, self.expfunc = width, out, expfunc
        self.deg, self.n_eig = expfunc.deg, expfunc.n_eig
        self.coeffs = nn.Parameter(torch.randn((width + 1) * out, self.deg, self.n_eig))

    def forward(self, x):
        s, x = x[-1, -1], x[:, :-1]
        basis = self.expfunc(torch.linspace(0, self.deg, self.deg), s * self.dilation + self.shift)
        numbers = sum((self.coeffs[:, :, i] * basis[i]).sum(1) for i in range(self.n_eig))
        self.weight = numbers[: self.out_features * self.in_features].reshape(self.out_features, self.in_features)
        self.bias = numbers[self.out_features * self.in_features :]
        return functional.linear(x, self.weight, self.bias)


class ConcatSquash(nn.Module):
    """As FFJORD has it."""

    def __init__(self, layer, width):
        super().__init__()
        self._layer = layer
        self._hyper_bias, self._hyper_gate = nn.Linear(1, width, bias=False), nn.Linear(1, width)

    def forward(self, t, x):
        pixels = [1] * (x.dim() - 2)
        gate, shift = (net(t.view(1, 1)).view(1, -1, *pixels) for net in (self._hyper_gate, self._hyper_bias))
        return self._layer(x) * torch.sigmoid(gate) + shift


class ConcatSquashLinear(ConcatSquash):
    def __init__(self, width, out):
        super().__init__(nn.Linear(width, out), out)


class ConcatSquashConv2d(ConcatSquash):
    def __init__(self, width, out):
        super().__init__(nn.Conv2d(width, out, 3, padding=1), out)


class Waves(nn.Module):
    """An embedding of the time as diffusion models have it."""

    def __init__(self, features, sines_first):
        super().__init__()
        self.half, self.sines_first = features // 2, sines_first

    def forward(self, t):
        rates = torch.exp(torch.arange(self.half) * -(np.log(10000) / (self.half - 1)))
        angles = t[:, None] * rates[None]
        return torch.cat([angles.sin(), angles.cos()] if self.sines_first else [angles.cos(), angles.sin()], 1)


class RandomWaves(nn.Module):
    """Gaussian Fourier features, as score models have them."""

    def __init__(self, features):
        super().__init__()
        self.rates = nn.Parameter(torch.randn(features // 2) * 8, requires_grad=False)

    def forward(self, t):
        angles = t[:, None] * self.rates * 2 * np.pi
        return torch.cat([angles.sin(), angles.cos()], 1)


class Added(nn.Module):
    """What a net of the time says is added within."""

    def __init__(self, waves, scale=1.0):
        super().__init__()
        self.time = nn.Sequential(waves, nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 24))
        self.a, self.b, self.act, self.scale = nn.Linear(2, 24), nn.Linear(24, 2), nn.SiLU(), scale

    def forward(self, t, x):
        return self.b(self.act(self.a(x) + self.time((t * self.scale).reshape(1))))


class Scaled(nn.Module):
    """What a net of the time says scales and shifts within: FiLM."""

    def __init__(self):
        super().__init__()
        self.early, self.late = nn.Linear(1, 16), nn.Linear(16, 48)
        self.a, self.b = nn.Linear(2, 24), nn.Linear(24, 2)

    def forward(self, t, x):
        scale, shift = self.late(torch.tanh(self.early(t.reshape(1, 1)))).chunk(2, 1)
        return self.b(torch.tanh(self.a(x) * (1 + scale) + shift))


class Beside(nn.Module):
    """What an embedding says stands beside the state."""

    def __init__(self, first):
        super().__init__()
        self.waves, self.net, self.first = RandomWaves(16), mlp(18, 32, 2), first

    def forward(self, t, x):
        waves = self.waves(t.expand(len(x)))
        return self.net(torch.cat([waves, x] if self.first else [x, waves], 1))


class Again(nn.Module):
    """Calls one activation twice, and one layer never."""

    def __init__(self):
        super().__init__()
        self.unused, self.act, self.c, self.b, self.a = nn.Linear(9, 9), nn.ReLU(), nn.Linear(8, 2), nn.Linear(8, 8), nn.Linear(2, 8)

    def forward(self, t, x):
        return self.c(self.act(self.b(self.act(self.a(x)))))


class Down(nn.Module):
    """The input beside what a coarser image says of it, as in a U-Net."""

    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Conv2d(2, 4, 3, stride=2, padding=1), nn.ConvTranspose2d(4, 4, 4, stride=2, padding=1)

    def forward(self, x):
        return torch.cat([x, self.up(torch.relu(self.down(x)))], 1)


def export(module, folder, example=None, **words):
    torch.manual_seed(3)
    return hyperserve.export(module, folder, example=torch.randn(5, 2) if example is None else example, program=PROGRAM, **words)


def kinds(path, part="field"):
    return [next(iter(layer)) for layer in json.loads((path / "model.json").read_text())[part]]
