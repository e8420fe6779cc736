"""Modules of torch as users and libraries write them, and their export. What imports this is skipped where torch cannot be."""

import json

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


class ConcatSquashLinear(nn.Module):
    def forward(self, t, x):
        return x


def export(module, folder, example=None, **words):
    torch.manual_seed(3)
    return hyperserve.export(module, folder, example=torch.randn(5, 2) if example is None else example, program=PROGRAM, **words)


def kinds(path, part="field"):
    return [next(iter(layer)) for layer in json.loads((path / "model.json").read_text())[part]]
