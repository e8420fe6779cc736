"""Float64 answers of nets, in numpy, that share no code with the package or the daemon."""

import numpy as np

ACTIVATIONS = {
    "selu": lambda a: 1.0507009873554804934193349852946 * np.where(
        a > 0, a, 1.6732632423543772848170429916717 * np.expm1(np.minimum(a, 0))),
    "softplus": lambda a: np.logaddexp(0, a),
    "tanh": np.tanh,
}


def solve(field, z, steps, span=(0.0, 1.0)):
    """Classical RK4."""
    s, step = span[0], (span[1] - span[0]) / steps
    for _ in range(steps):
        a = field(s, z)
        b = field(s + step / 2, z + step / 2 * a)
        c = field(s + step / 2, z + step / 2 * b)
        d = field(s + step, z + step * c)
        z, s = z + step / 6 * (a + 2 * b + 2 * c + d), s + step
    return z


def mlp(layers, activations, time):
    """layers: (weight, bias). time: the layers that see s, as "last"/"first" of the first layer, or "every" (first)."""
    layers = [(weight.astype(np.float64), bias.astype(np.float64)) for weight, bias in layers]

    def field(s, z):
        for place, (weight, bias) in enumerate(layers):
            column = np.full((len(z), 1), s)
            if time == "every" or (time == "first" and place == 0):
                z = np.concatenate([column, z], 1)
            elif time == "last" and place == 0:
                z = np.concatenate([z, column], 1)
            z = z @ weight.T + bias
            if place < len(layers) - 1:
                z = ACTIVATIONS[activations[place]](z)
        return z

    return field


def conv(x, weight, bias, stride=1, padding=1):
    padded = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, weight.shape[2:], (2, 3))[:, :, ::stride, ::stride]
    return np.einsum("nchwij,ocij->nohw", windows, weight, optimize=True) + bias[:, None, None]


def group_norm(x, groups, weight, bias):
    parts = x.reshape(len(x), groups, -1)
    parts = (parts - parts.mean(2, keepdims=True)) / np.sqrt(parts.var(2, keepdims=True) + 1e-5)
    return parts.reshape(x.shape) * weight[:, None, None] + bias[:, None, None]


def distance(found, wanted):
    """The largest difference over the largest answer."""
    return np.abs(found - wanted).max() / np.abs(wanted).max()
