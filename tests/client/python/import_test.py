"""Public state dicts become models whose answers are those of a float64 oracle."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import hyperserve
import oracle
from conftest import BIN, ROOT, Daemon
from hyperserve import local
from hyperserve.import_model import import_model, main
from hyperserve.layers import LayoutError
from hyperserve.layouts import Choices
from hyperserve.tensor_files import read_tensors, write_safetensors
from torch_files import dict_opcodes, plain, save_legacy, save_zip, state_dict_opcodes

EXTERNAL = pathlib.Path(os.environ.get("HYPERSERVE_EXTERNAL", ROOT.parent / "shared/external")) / "torchcfm"
PROGRAM = BIN / "hyperserve"
# Of a solve in float32 with the same solve in float64, relative to the largest answer: some 2e-6 are measured.
AGREEMENT = 1e-5
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


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A model of each case, written by each kind of file in turn, and a daemon that serves them."""
    folder = tmp_path_factory.mktemp("imported")
    cases = {}
    for i, make in enumerate(CASES):
        layout, items, indices, field, width = make()
        (save_zip, save_legacy, write_safetensors)[i % 3](
            folder / "file", renumbered(items, indices))
        import_model(folder / "file", folder / "models" / make.__name__, layout=layout, program=PROGRAM)
        cases[make.__name__] = (field, width)
    daemon = Daemon(folder / "daemon", folder / "models")
    with hyperserve.Client(daemon.address) as client:
        yield client, cases
    daemon.stop()


@pytest.mark.parametrize("name", [make.__name__ for make in CASES])
def test_answers_are_those_of_the_oracle(served, name):
    client, cases = served
    field, width = cases[name]
    start = RANDOM.standard_normal((1000, width)).astype(np.float32)
    # The same steps: 1e-12, as tests/golden asks of fixed steps in double.
    steps = client.solve(name, state=start, plan="rk4:4/double").state
    assert oracle.distance(steps, oracle.solve(field, start.astype(np.float64), 4)) <= 1e-12


def external(name):
    if not (EXTERNAL / f"{name}.safetensors").exists():
        pytest.skip(f"no {name} in {EXTERNAL}")
    return EXTERNAL / f"{name}.safetensors"


@pytest.mark.parametrize("name", ["gaussian_to_moons", "eight_gaussians_to_moons"])
def test_public_nets(name, tmp_path):
    file = external(name)
    done = subprocess.run([sys.executable, "-m", "hyperserve.import_model", file, tmp_path / "models" / name,
                           "--layout=torchcfm", f"--hyperserve={PROGRAM}"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    tensors = read_tensors(file)
    layers = [(tensors[f"net.{i}.weight"], tensors[f"net.{i}.bias"]) for i in (0, 2, 4, 6)]
    field = oracle.mlp(layers, ["selu"] * 3, "last")
    gold = read_tensors(EXTERNAL / f"{name}.gold.safetensors")
    assert oracle.distance(field(0.5, gold["start"].astype(float)), gold["slope_half"]) <= 1e-12  # the oracle itself
    start = RANDOM.standard_normal((1000, 2)).astype(np.float32)
    solved = oracle.solve(field, start.astype(np.float64), 20)
    daemon = Daemon(tmp_path, tmp_path / "models", copy=False)
    with hyperserve.Client(daemon.address) as client:
        # Of the same steps: these fields have kinks, and near one a float32 solve controls its steps differently.
        assert oracle.distance(client.solve(name, state=start, plan="rk4:20").state, solved) <= AGREEMENT
        assert oracle.distance(client.solve(name, state=start, plan="rk4:20/double").state, solved) <= 1e-12
        end = client.solve(name, state=gold["start"], plan="dopri5:1e-9/double").state
        assert oracle.distance(end, gold["end"]) <= AGREEMENT
        for plan, answer in (("euler:10", "euler_10"), ("midpoint:4", "midpoint_4"), ("rk4:2", "rk4_2")):
            state = client.solve(name, state=gold["start"], plan=f"{plan}/double").state
            assert oracle.distance(state, gold[answer]) <= 1e-12
    daemon.stop()


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


@pytest.mark.parametrize("channels, size, augments, pooled", [(1, 28, True, 1), (3, 32, False, 2)], ids=["mnist", "cifar"])
def test_classifiers_of_diffeqml(channels, size, augments, pooled, tmp_path):
    tensors, norm, first, field, last = classifier_tensors(channels, augments, pooled)
    save_legacy(tmp_path / "file", tensors)
    import_model(tmp_path / "file", tmp_path / "models/images", layout="diffeqml_classifier", program=PROGRAM)
    spec = json.loads((tmp_path / "models/images/model.json").read_text())
    images = RANDOM.integers(0, 256, (4, channels, size, size), dtype=np.uint8)

    def column(values):
        return np.asarray(values, np.float64)[:, None, None]

    x = (images / 255 - column(spec["input"]["mean"])) / column(spec["input"]["deviation"])
    x = (x - column(norm["0.running_mean"])) / np.sqrt(column(norm["0.running_var"]) + 1e-5)
    x = x * column(norm["0.weight"]) + column(norm["0.bias"])
    z = oracle.conv(x, *first)
    z = np.concatenate([z, x], 1) if augments else z

    def slope(s, z):
        for i, layer in enumerate(field):
            z = oracle.conv(z if i == 0 else np.logaddexp(0, z), *layer)
        return z

    z = oracle.solve(slope, z, 2)
    cell = size // pooled
    z = z.reshape(4, -1, pooled, cell, pooled, cell).mean((3, 5)).reshape(4, -1)
    daemon = Daemon(tmp_path, tmp_path / "models", copy=False)
    with hyperserve.Client(daemon.address) as client:
        answer = client.classify("images", images, plan="rk4:2/double", logits=True)
    daemon.stop()
    assert oracle.distance(answer.logits, z @ last[0].T.astype(np.float64) + last[1]) <= 1e-12


def mnist_tensors():
    def conv(out, width, kernel):
        weight = RANDOM.standard_normal((out, width, kernel, kernel)) / (kernel * width**0.5)
        return weight.astype(np.float32), (0.1 * RANDOM.standard_normal(out)).astype(np.float32)

    def norm():
        return tuple((1 + 0.3 * RANDOM.standard_normal(64)).astype(np.float32) for _ in range(2))

    parts = {"0": conv(64, 1, 3), "1": norm(), "3": conv(64, 64, 4), "4": norm(), "6": conv(64, 64, 4)}
    parts |= {f"7.odefunc.norm{number}": norm() for number in (1, 2, 3)}
    parts |= {f"7.odefunc.conv{number}._layer": conv(64, 65, 3) for number in (1, 2)}
    return parts | {"8": norm(), "12": dense(10, 64)}


def test_the_classifier_of_torchdiffeq(tmp_path):
    parts = mnist_tensors()
    tensors = {f"{name}.{kind}": one for name, pair in parts.items() for kind, one in zip(("weight", "bias"), pair)}
    # As the example saves it, with the arguments of its program.
    arguments = b"cargparse\nNamespace\n)\x81}(" + plain("tol") + plain(1e-3) + plain("save") + plain("./here") + b"ub"
    save_zip(tmp_path / "file", tensors, dict_opcodes(
        [("state_dict", state_dict_opcodes(tensors, view=False)), ("args", arguments)]))
    import_model(tmp_path / "file", tmp_path / "models/digits", layout="torchdiffeq_mnist", program=PROGRAM)

    def normed(z, name):
        return np.maximum(oracle.group_norm(z, 32, *parts[name]), 0)

    images = RANDOM.integers(0, 256, (4, 1, 28, 28), dtype=np.uint8)
    z = oracle.conv(images / 255, *parts["0"], padding=0)
    for norm, conv in (("1", "3"), ("4", "6")):
        z = oracle.conv(normed(z, norm), *parts[conv], stride=2)

    def slope(s, z):
        for number in (1, 2):
            z = normed(z, f"7.odefunc.norm{number}")
            z = oracle.conv(np.concatenate([np.full_like(z[:, :1], s), z], 1), *parts[f"7.odefunc.conv{number}._layer"])
        return oracle.group_norm(z, 32, *parts["7.odefunc.norm3"])

    z = normed(oracle.solve(slope, z, 2), "8").mean((2, 3))
    daemon = Daemon(tmp_path, tmp_path / "models", copy=False)
    with hyperserve.Client(daemon.address) as client:
        answer = client.classify("digits", images, plan="rk4:2/double", logits=True)
    daemon.stop()
    assert oracle.distance(answer.logits, z @ parts["12"][0].T.astype(np.float64) + parts["12"][1]) <= 1e-12
    for change, words in (({"7.odefunc.norm3.bias": np.ones(3, np.float32)}, "7.odefunc.norm3: tensors of a norm have one shape"),
                          ({"3.weight": np.ones((64, 64, 3, 3), np.float32)}, "3: weight of shape .* a 4x4 convolution"),
                          ({"9.weight": np.ones(3, np.float32)}, "9.weight: no name of this layout")):
        save_zip(tmp_path / "file", tensors | change)
        with pytest.raises(LayoutError, match=words):
            import_model(tmp_path / "file", tmp_path / "other", layout="torchdiffeq_mnist", program=PROGRAM)


@pytest.mark.parametrize("change, words", [
    ({"0.weight": None}, "0.weight: missing"), ({"0.running_var": np.ones(2, np.float32)}, "0: tensors of a norm have one shape"),
    ({name: np.ones(2, np.float32) for name in ("0.weight", "0.bias", "0.running_mean", "0.running_var")},
     "0: a batch norm of 2 channels; 1 or 3 wanted"),
    ({"0.weight": np.ones((), np.float32)}, "0: tensors of a norm"), ({"1.augment_func.weight": None}, "1.weight: missing"),
    ({"5.weight": None}, "5.weight: missing"), ({"5.weight": None, "5.bias": None}, "weight: missing in this layout"),
    ({"7.weight": np.ones((2, 2), np.float32)}, "5.bias: no name of this layout"),
    ({"5.weight": np.ones((10, 7), np.float32)}, "5: 7 inputs do not fit"),
    ({"5.weight": np.ones((10, 6), np.int64)}, "5: numbers of type int64"),
    ({"1.augment_func.weight": np.ones((5, 1, 2, 3), np.float32)}, r"1.augment_func: a kernel of shape \(2, 3\)"),
    ({"1.augment_func.weight": np.ones(5, np.float32)}, "1.augment_func: no weight of a linear layer or convolution"),
])
def test_a_classifier_of_another_layout(change, words, tmp_path):
    tensors = {name: tensor for name, tensor in (classifier_tensors(1, True, 1)[0] | change).items() if tensor is not None}
    save_zip(tmp_path / "file", tensors)
    with pytest.raises(LayoutError, match=words):
        import_model(tmp_path / "file", tmp_path / "model", layout="diffeqml_classifier", program=PROGRAM)
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("layout, change, words", [
    ("torchcfm", {"net.2.running_mean": np.ones(3)}, "net.2.running_mean: no name of this layout"),
    ("torchcfm", {"other.0.weight": np.ones((3, 3))}, "other.0.weight: no name of this layout"),
    ("torchcfm", {"net.2.weight": np.ones((3, 5), np.float32)}, "net.2: 5 inputs found, 8 wanted"),
    ("torchcfm", {"net.0.weight": np.ones((8, 9), np.float32)}, "net.0: 9 inputs found, 3 and the time wanted"),
    ("torchcfm", {"net.2.weight": np.ones(3, np.float32)}, "net.2: no weight of a linear layer"),
    ("torchcfm", {"net.2.weight": np.ones((3, 8), np.int64)}, "net.2: numbers of type int64; floating-point ones wanted"),
    ("torchcfm", {"net.2.bias": np.ones(3, bool)}, "net.2: numbers of type bool"),
    ("torchcfm", {"net.2.bias": np.ones(4, np.float32)}, r"net.2: a bias of shape \(4,\); \(3,\) wanted"),
    ("torchcfm", {"net.4.bias": np.ones(3, np.float32)}, "net.4: a bias without a weight"),
    ("torchcfm", {"net.2._layer.bias": np.ones(3, np.float32)}, "net.2._layer.bias: the second bias of net.2"),
    ("torchcfm", {"net.2.weight": np.ones((1, 8), np.float32), "net.2.bias": np.ones(1, np.float32)}, "net.2: one output; a potential"),
    ("torchdiffeq", {"net.0._hyper_gate.weight": np.ones((8, 1), np.float32)}, r"net.0._hyper_gate.bias: none of shape \(8,\)"),
    ("torchdiffeq", {"net.0._hyper_bias.weight": np.ones((8, 2), np.float32)}, r"shape \(8, 2\) that fits no layer"),
    ("diffeqml_classifier", {}, "fewer than two layers"),
])
def test_a_state_dict_of_another_layout(layout, change, words, tmp_path):
    net = renumbered(named([dense(8, 4), dense(3, 8)], "net.{0}").items(), [0, 2])
    save_zip(tmp_path / "file", net | change)
    with pytest.raises(LayoutError, match=words):
        import_model(tmp_path / "file", tmp_path / "model", layout=layout, program=PROGRAM)
    assert not (tmp_path / "model").exists()


def test_what_the_caller_says_counts(tmp_path):
    save_zip(tmp_path / "file", renumbered(named([dense(8, 3), dense(8, 8), dense(2, 8)], "net.{0}").items(), [0, 2, 4]))
    choices = Choices(activations=["silu", "gelu"], time="first", direction="data_to_noise", span=(0, 2))
    import_model(tmp_path / "file", tmp_path / "model", layout="torchcfm", choices=choices, program=PROGRAM)
    spec = json.loads((tmp_path / "model/model.json").read_text())
    assert (spec["direction"], spec["span"]) == ("data_to_noise", [0, 2])
    kinds = [next(iter(layer)) for layer in spec["field"]]
    assert kinds == ["depth_cat", "linear", "silu", "linear", "gelu", "linear"] and spec["field"][0]["depth_cat"]["first"]
    for activations, words in ((["silu"] * 3, "3 activations for 2 places"), (["swish"], "no activation is called swish")):
        with pytest.raises(LayoutError, match=words):
            import_model(tmp_path / "file", tmp_path / "other", layout="torchcfm", choices=Choices(activations=activations),
                         program=PROGRAM)


@pytest.mark.parametrize("inputs", ["x,c,t", "t,x,c", "c,x,t", "c,t,x"])
def test_a_conditional_flow(inputs, tmp_path):
    """The first layer's inputs in any order; an Euler step is one evaluation of the field."""
    layers = [dense(16, 2 + 3 + 1), dense(2, 16)]
    write_safetensors(tmp_path / "file", renumbered(named(layers, "net.{0}").items(), [0, 2]))
    words = [str(tmp_path / "file"), str(tmp_path / "models" / "mine"), "--layout=torchcfm", "--condition=3", f"--inputs={inputs}",
             "--none", "0", "0", "0", f"--hyperserve={PROGRAM}"]
    assert main(words) == 0
    x, c = np.random.default_rng(1).standard_normal((5, 2)), np.random.default_rng(2).standard_normal((5, 3))
    with local.daemon(tmp_path / "models", PROGRAM) as address, hyperserve.Client(address) as client:
        end = client.solve("mine", state=x, condition=c, span=(0.25, 0.75), plan="euler:1/double").state
    seen = np.concatenate([{"x": x, "c": c, "t": np.full((5, 1), 0.25)}[name] for name in inputs.split(",")], 1)
    (first, bias), (last, shift) = layers
    slope = oracle.ACTIVATIONS["selu"](seen @ first.T + bias) @ last.T + shift
    assert oracle.distance(end, x + 0.5 * slope) < 1e-6
    for wrong in ("x,c", "x,t", "x,c,c"):
        with pytest.raises(LayoutError, match="an order of x, c and t wanted"):
            import_model(tmp_path / "file", tmp_path / "other", layout="torchcfm",
                         choices=Choices(condition=3, inputs=wrong), program=PROGRAM)


def test_a_block_of_ffjord_knows_its_span(tmp_path):
    tensors = dict(ffjord_block_case()[1]) | {"chain.0.sqrt_end_time": np.array(0.5)}
    save_zip(tmp_path / "file", tensors)
    import_model(tmp_path / "file", tmp_path / "model", layout="torchdiffeq", program=PROGRAM)
    spec = json.loads((tmp_path / "model/model.json").read_text())
    assert (spec["direction"], spec["span"]) == ("data_to_noise", [0, 0.25])
    save_zip(tmp_path / "file", tensors | {"chain.1.sqrt_end_time": np.array(0.5)})
    with pytest.raises(LayoutError, match="2 lengths of spans"):
        import_model(tmp_path / "file", tmp_path / "other", layout="torchdiffeq", program=PROGRAM)


def test_the_check_has_the_last_word(tmp_path):
    tensors = renumbered(named([dense(8, 3), dense(2, 8)], "net.{0}").items(), [0, 2])
    tensors["net.2.bias"][1] = np.nan
    save_zip(tmp_path / "file", tensors)
    words = ["-m", "hyperserve.import_model", tmp_path / "file", tmp_path / "model", "--layout=torchcfm"]
    done = subprocess.run([sys.executable, *words, f"--hyperserve={PROGRAM}"], capture_output=True, text=True)
    assert done.returncode == 1 and "field.3.bias" in done.stderr and not (tmp_path / "model").exists()
    done = subprocess.run([sys.executable, *words, "--hyperserve=nowhere"], capture_output=True, text=True)
    assert done.returncode == 1 and "no program nowhere" in done.stderr and not (tmp_path / "model").exists()
