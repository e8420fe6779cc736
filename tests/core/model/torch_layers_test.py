#!/usr/bin/env python3
"""Every layer against PyTorch's own module: values and tangents in float64, from the module's state_dict.

Usage: torch_layers_test.py APPLY_STEM. Exits with 77 (skipped) where PyTorch cannot be imported, as with the light set
of wheels.
"""
import json
import os
import struct
import subprocess
import sys
import tempfile

try:
    import torch
    from torch import nn
except (ImportError, OSError) as error:
    print("skipped: no PyTorch:", error)
    sys.exit(77)

ROWS, TANGENTS, AGREEMENT = 3, 2, 1e-12
IMAGES, FEATURES = (4, 6, 6), (6,)


class Sin(nn.Module):
    def forward(self, x):
        return torch.sin(x)


class MeanPool(nn.Module):
    def forward(self, x):
        return x.mean((-2, -1))


class Clamp(nn.Module):
    def forward(self, x):
        return x.clamp(-0.5, 0.75)


class Attention(nn.MultiheadAttention):
    def forward(self, x):
        positions = x.flatten(2).transpose(1, 2)
        return super().forward(positions, positions, positions)[0].transpose(1, 2).reshape(x.shape)


class Within(nn.Module):
    """A module with layers of its own."""

    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.Sequential(*layers)


class Residual(Within):
    def forward(self, x):
        return x + self.layers(x)


class Augment(Within):
    def forward(self, x):
        return torch.cat([self.layers(x), x], 1)


class Skip(Within):
    def forward(self, x):
        return torch.cat([x, self.layers(x)], 1)


class Parallel(nn.Module):
    def __init__(self, *branches):
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x):
        return torch.cat([branch(x) for branch in self.branches], 1)


CONV = {"in": 4, "out": 6}
CASES = [  # our layer, PyTorch's, the shape of a row
    ({"linear": {"in": 6, "out": 3}}, nn.Linear(6, 3), FEATURES),
    ({"linear": {"in": 6, "out": 3, "bias": False}}, nn.Linear(6, 3, bias=False), FEATURES),
    ({"conv2d": {**CONV, "kernel": 3, "padding": 1, "stride": 2}}, nn.Conv2d(4, 6, 3, 2, 1), IMAGES),
    ({"conv2d": {**CONV, "kernel_size": [3, 1], "padding_size": [1, 0], "groups": 2}},
     nn.Conv2d(4, 6, (3, 1), padding=(1, 0), groups=2), IMAGES),
    ({"batch_norm": {"channels": 4}}, nn.BatchNorm2d(4), IMAGES),
    ({"group_norm": {"groups": 2, "channels": 4}}, nn.GroupNorm(2, 4), IMAGES),
    ({"layer_norm": {"normalized_shape": [6]}}, nn.LayerNorm(6), FEATURES),
    ({"layer_norm": {"normalized_shape": [6, 6], "eps": 1e-3}}, nn.LayerNorm([6, 6], eps=1e-3), IMAGES),
    ({"tanh": {}}, nn.Tanh(), FEATURES),
    ({"sigmoid": {}}, nn.Sigmoid(), FEATURES),
    ({"sin": {}}, Sin(), FEATURES),
    ({"relu": {}}, nn.ReLU(), FEATURES),
    ({"silu": {}}, nn.SiLU(), FEATURES),
    ({"selu": {}}, nn.SELU(), FEATURES),
    # A threshold is an approximation that we do not make.
    ({"softplus": {}}, nn.Softplus(threshold=1e3), FEATURES),
    ({"softplus": {"beta": 2.5}}, nn.Softplus(beta=2.5, threshold=1e3), FEATURES),
    ({"elu": {"alpha": 0.75}}, nn.ELU(alpha=0.75), FEATURES),
    ({"leaky_relu": {}}, nn.LeakyReLU(), FEATURES),
    ({"leaky_relu": {"negative_slope": 0.2}}, nn.LeakyReLU(0.2), FEATURES),
    ({"gelu": {}}, nn.GELU(), FEATURES),
    ({"gelu": {"approximate": "tanh"}}, nn.GELU(approximate="tanh"), FEATURES),
    ({"prelu": {"slopes": 4}}, nn.PReLU(4), IMAGES),
    ({"avg_pool": {"kernel": 3, "stride": 2, "padding": 1}}, nn.AvgPool2d(3, 2, 1), IMAGES),
    ({"max_pool": {"kernel": 3, "stride": 2, "padding": 1}}, nn.MaxPool2d(3, 2, 1), IMAGES),
    ({"max_pool": {"kernel": 2}}, nn.MaxPool2d(2), IMAGES),
    ({"mean_pool": {}}, MeanPool(), IMAGES),
    ({"flatten": {}}, nn.Flatten(), IMAGES),
    ({"pixel_shuffle": {"upscale_factor": 2}}, nn.PixelShuffle(2), IMAGES),
    ({"pixel_unshuffle": {"downscale_factor": 3}}, nn.PixelUnshuffle(3), IMAGES),
    ({"augment": {"layers": [{"conv2d": {"in": 4, "out": 2, "kernel": 1}}, {"selu": {}}]}},
     Augment(nn.Conv2d(4, 2, 1), nn.SELU()), IMAGES),
    ({"conv_transpose2d": {**CONV, "kernel": 4, "padding": 1, "stride": 2}}, nn.ConvTranspose2d(4, 6, 4, 2, 1), IMAGES),
    ({"conv_transpose2d": {**CONV, "kernel": 3, "stride": 3, "output_padding": 2, "bias": False}},
     nn.ConvTranspose2d(4, 6, 3, 3, output_padding=2, bias=False), IMAGES),
    ({"attention": {"channels": 4, "heads": 2}}, Attention(4, 2, batch_first=True), IMAGES),
    ({"upsample": {"scale_factor": 2}}, nn.Upsample(scale_factor=2), IMAGES),
    ({"clamp": {"low": -0.5, "high": 0.75}}, Clamp(), FEATURES),
    ({"skip": {"layers": [{"conv2d": {"in": 4, "out": 2, "kernel": 1}}, {"selu": {}}]}},
     Skip(nn.Conv2d(4, 2, 1), nn.SELU()), IMAGES),
    ({"parallel": {"branches": [{"layers": [{"linear": {"in": 6, "out": 2}}, {"tanh": {}}]}, {},
                                {"layers": [{"linear": {"in": 6, "out": 3}}]}]}},
     Parallel(nn.Sequential(nn.Linear(6, 2), nn.Tanh()), nn.Sequential(), nn.Sequential(nn.Linear(6, 3))), FEATURES),
    ({"residual": {"layers": [{"linear": {"in": 6, "out": 6}}, {"tanh": {}}]}},
     Residual(nn.Linear(6, 6), nn.Tanh()), FEATURES),
]
FORMATS = {torch.float32: ("F32", "f"), torch.float64: ("F64", "d")}


def save(path, tensors):
    header, data = {}, b""
    for name, tensor in tensors.items():
        dtype, code = FORMATS[tensor.dtype]
        raw = struct.pack(f"<{tensor.numel()}{code}", *tensor.detach().flatten().tolist())
        header[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def load(path):
    with open(path, "rb") as file:
        content = file.read()
    length = struct.unpack("<Q", content[:8])[0]
    header, data, tensors = json.loads(content[8:8 + length]), content[8 + length:], {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        assert entry["dtype"] == "F64", entry
        numbers = struct.unpack(f"<{(end - begin) // 8}d", data[begin:end])
        tensors[name] = torch.tensor(numbers, dtype=torch.float64).reshape(entry["shape"])
    return tensors


def ours(program, spec, weights, x, t, depth):
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "model.json"), "w") as file:
            json.dump({"format": 1, "span": [0, 1], **spec}, file)
        save(os.path.join(folder, "weights.safetensors"), weights)
        save(os.path.join(folder, "rows.safetensors"), {"x": x, "t": t, "depth": depth})
        subprocess.run([program, folder], check=True)
        answer = load(os.path.join(folder, "answer.safetensors"))
        return answer["y"], answer["dy"]


def difference(a, b):
    return ((a - b).abs().max() / b.abs().max()).item() if a.shape == b.shape else float("inf")


def pushforward(function, x, t):
    """J t, as the derivative of <J^T v, t> by v."""
    x = x.requires_grad_()
    y = function(x)
    v = torch.zeros_like(y, requires_grad=True)
    pulled = torch.autograd.grad((y * v).sum(), x, create_graph=True)[0]
    return torch.autograd.grad((pulled * t).sum(), v)[0]


def compare(program, name, spec, weights, function, row, depth):
    """The largest difference, of values and of tangents, over the largest answer."""
    x, t = 2 * torch.randn(ROWS, *row).double(), torch.randn(TANGENTS, ROWS, *row).double()
    y, dy = ours(program, spec, weights, x, t, depth)
    wanted_dy = torch.stack([pushforward(function, x, one) for one in t])
    worst = max(difference(y, function(x)), difference(dy, wanted_dy))
    print(f"{name}: {worst:.1e}")
    return worst


def randomise(module):
    """Numbers that float32 holds, away from what modules begin with."""
    for name, tensor in module.state_dict().items():
        if tensor.is_floating_point():
            tensor.copy_(torch.randn_like(tensor))
            if name.endswith("running_var"):
                tensor.abs_().add_(0.1)


def stem_case(program, layer, module, row):
    module = nn.Sequential(module).eval()
    randomise(module)
    weights = {f"stem.{name}": tensor for name, tensor in module.state_dict().items() if tensor.is_floating_point()}
    state = module(torch.zeros(1, *row)).shape[1:]
    weights.update({"head.1.weight": torch.ones(1, state.numel()), "head.1.bias": torch.zeros(1)})
    spec = {"kind": "classifier", "input": {"shape": row}, "stem": [layer], "field": [{"tanh": {}}],
            "head": [{"flatten": {}}, {"linear": {"in": state.numel(), "out": 1}}]}
    return compare(program, json.dumps(layer), spec, weights, module.double(), row, torch.zeros(ROWS).double())


class DepthCat(nn.Module):
    """A linear layer that also takes the depth."""

    def __init__(self, first):
        super().__init__()
        self.first, self.linear = first, nn.Linear(7, 6)
        self.json = [{"depth_cat": {"first": True} if first else {}}, {"linear": {"in": 7, "out": 6}}]
        self.names = {"field.1.weight": "linear.weight", "field.1.bias": "linear.bias"}

    def forward(self, s, x):
        return self.linear(torch.cat([s, x] if self.first else [x, s], 1))


class ConcatSquash(nn.Module):
    """FFJORD's layer: gate and shift are affine in the depth."""
    json = [{"linear": {"in": 6, "out": 6}},
            {"film": {"gate": "sigmoid", "layers": [{"linear": {"in": 1, "out": 12}}]}}]
    names = {"field.0.weight": "linear.weight", "field.0.bias": "linear.bias",
             "field.1.layers.0.weight": "hyper.weight", "field.1.layers.0.bias": "hyper.bias"}

    def __init__(self):
        super().__init__()
        self.linear, self.hyper = nn.Linear(6, 6), nn.Linear(1, 12)

    def forward(self, s, x):
        gate, shift = self.hyper(s).chunk(2, 1)
        return self.linear(x) * torch.sigmoid(gate) + shift


class Galerkin(nn.Module):
    """Linear layers in a Fourier series of the depth."""
    json = [{"galerkin_linear": {"in": 6, "out": 6, "terms": 3, "basis": "fourier", "period": 2}}]
    names = {"field.0.weight": "weight", "field.0.bias": "bias"}

    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.zeros(3, 6, 6)), nn.Parameter(torch.zeros(3, 6))

    def forward(self, s, x):
        w = torch.pi * s[:, 0]
        phi = torch.stack([torch.ones_like(w), w.sin(), w.cos()], 1)
        return torch.einsum("bk,koi,bi->bo", phi, self.weight, x) + phi @ self.bias


def depth_case(program, module):
    """The depth is known in fields only, which map a state to its own shape."""
    randomise(module)
    state = module.state_dict()
    weights = {ours: state[name] for ours, name in module.names.items()}
    spec = {"kind": "flow", "direction": "data_to_noise", "input": {"shape": FEATURES}, "field": module.json}
    depth = torch.rand(ROWS).double()
    module = module.double()
    return compare(program, json.dumps(module.json), spec, weights, lambda x: module(depth[:, None], x), FEATURES, depth)


def main():
    torch.manual_seed(1)
    worst = [stem_case(sys.argv[1], *case) for case in CASES]
    depth_cases = [DepthCat(False), DepthCat(True), ConcatSquash(), Galerkin()]
    worst += [depth_case(sys.argv[1], module) for module in depth_cases]
    assert max(worst) <= AGREEMENT, max(worst)
    print(f"ok: {len(worst)} layers within {max(worst):.1e}")


if __name__ == "__main__":
    main()
