"""State dicts of random nets as public programs save them, with the fields that they stand for."""

import numpy as np

import oracle

RANDOM = np.random.default_rng(5)


def dense(out, width, scale=1.0):
    return ((scale * RANDOM.standard_normal((out, width)) / width**0.5).astype(np.float32),
            (0.3 * RANDOM.standard_normal(out)).astype(np.float32))


def named(layers, name):
    tensors = {}
    for i, (weight, bias) in enumerate(layers):
        tensors |= {f"{name.format(i)}.weight": weight, f"{name.format(i)}.bias": bias}
    return tensors


def torchcfm_case():
    layers = [dense(32, 4), dense(32, 32), dense(32, 32), dense(3, 32)]
    return "torchcfm", named(layers, "net.{0}").items(), [0, 2, 4, 6], oracle.mlp(layers, ["selu"] * 3, "last"), 3


def still_torchcfm_case():
    layers = [dense(16, 2), dense(2, 16)]
    return "torchcfm", named(layers, "model.net.{0}").items(), [0, 2], oracle.mlp(layers, ["selu"], "none"), 2


def torchdiffeq_case():
    layers = [dense(24, 3), dense(24, 24), dense(2, 24)]
    return "torchdiffeq", named(layers, "func.net.{0}").items(), [0, 2, 4], oracle.mlp(layers, ["tanh"] * 2, "first"), 2


def ffjord_case():
    layers = [dense(24, 4), dense(24, 25), dense(3, 25)]
    tensors = named(layers, "odefunc.diffeq.layers.{0}._layer")
    return "torchdiffeq", tensors.items(), [0, 1, 2], oracle.mlp(layers, ["tanh"] * 2, "every"), 3


def squashed_case():
    """FFJORD's concat-squash, as its 2-D examples have it."""
    layers, name = [dense(24, 3), dense(3, 24)], "chain.0.odefunc.diffeq.layers.{0}."
    gates = [(dense(len(bias), 1), dense(len(bias), 1)[0]) for _, bias in layers]
    tensors = named(layers, name + "_layer")
    for i, ((gate, bias), shift) in enumerate(gates):
        tensors |= {name.format(i) + "_hyper_gate.weight": gate, name.format(i) + "_hyper_gate.bias": bias}
        tensors |= {name.format(i) + "_hyper_bias.weight": shift}

    def field(s, z):
        for place, ((weight, bias), ((gate, gate_bias), shift)) in enumerate(zip(layers, gates)):
            gate = 1 / (1 + np.exp(-(gate[:, 0].astype(float) * s + gate_bias)))
            z = (z @ weight.T.astype(float) + bias) * gate + shift[:, 0].astype(float) * s
            z = np.tanh(z) if place == 0 else z
        return z

    return "torchdiffeq", tensors.items(), [0, 1], field, 3


def latent_case():
    """As torchdiffeq's examples name layers."""
    layers = [dense(20, 4), dense(20, 20), dense(4, 20)]
    field = oracle.mlp(layers, ["tanh"] * 2, "none")
    return "torchdiffeq", named(layers, "func.fc{0}").items(), [1, 2, 3], field, 4


def ffjord_block_case():
    """With the length of the span beside the field, and the time as a term of each layer's answer."""
    layers = [dense(24, 4), dense(3, 25)]
    name = "chain.0.odefunc.diffeq.layers.{0}."
    tensors = named([(weight[:, 1:].copy(), bias) for weight, bias in layers], name + "_layer")
    tensors |= {name.format(i) + "_hyper_bias.weight": weight[:, :1].copy() for i, (weight, _) in enumerate(layers)}
    tensors |= {"chain.0.sqrt_end_time": np.array(1.0), "chain.0.odefunc._num_evals": np.array(3.0)}
    return "torchdiffeq", tensors.items(), [0, 1], oracle.mlp(layers, ["tanh"], "every"), 3


def diffeqml_case():
    layers = [dense(16, 2), dense(16, 16), dense(16, 16), dense(16, 16), dense(2, 16)]
    field = oracle.mlp(layers, ["softplus"] * 3 + ["tanh"], "none")
    tensors = named(layers, "1.defunc.m.net.{0}")
    tensors |= {name.replace("1.defunc", "1.adjoint.func"): tensor for name, tensor in tensors.items()}
    return "diffeqml_flow", tensors.items(), [0, 2, 4, 6, 8], field, 2


CASES = [torchcfm_case, still_torchcfm_case, torchdiffeq_case, ffjord_case, latent_case, ffjord_block_case, squashed_case, diffeqml_case]


def renumbered(items, indices):
    """The index of each layer, those without tensors counted."""
    def rename(name):
        parts = name.split(".")
        place = max((i for i, part in enumerate(parts) if part.isdigit()), default=None)
        if place is not None:
            parts[place] = str(indices[int(parts[place])])
        return ".".join(parts)

    return {rename(name): tensor for name, tensor in items}


def classifier_tensors(channels, augments, pooled):
    """The layouts of DiffEqML's classifiers, with few channels."""
    def conv(out, width):
        return ((RANDOM.standard_normal((out, width, 3, 3)) / (3 * width**0.5)).astype(np.float32),
                (0.1 * RANDOM.standard_normal(out)).astype(np.float32))

    state = 6
    first = conv(state - channels, channels) if augments else conv(state, channels)
    field = [conv(7, state), conv(7, 7), conv(state, 7)]
    norm = {f"0.{name}": np.abs(RANDOM.standard_normal(channels)).astype(np.float32) + np.float32(0.1)
            for name in ("weight", "bias", "running_mean", "running_var")}
    tensors = norm | {"0.num_batches_tracked": np.array(9)}
    prefix = "1.augment_func" if augments else "1"
    tensors |= {f"{prefix}.weight": first[0], f"{prefix}.bias": first[1]}
    tensors |= {
        f"2.{part}.m.{2 * i}.{kind}": tensor for part in ("defunc", "adjoint.func") for i, layer in enumerate(field)
        for kind, tensor in zip(("weight", "bias"), layer)}
    last = dense(10, state * pooled * pooled)
    tensors |= {"5.weight": last[0], "5.bias": last[1]}
    return tensors, norm, first, field, last
