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
from state_dicts import CASES, classifier_tensors, dense, ffjord_block_case, named, renumbered, squashed_case
from torch_files import dict_opcodes, plain, save_legacy, save_zip, state_dict_opcodes

EXTERNAL = pathlib.Path(os.environ.get("HYPERSERVE_EXTERNAL", ROOT.parent / "shared/external")) / "torchcfm"
PROGRAM = BIN / "hyperserve"
# Of a solve in float32 with the same solve in float64, relative to the largest answer: some 2e-6 are measured.
AGREEMENT = 1e-5
RANDOM = np.random.default_rng(6)


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


@pytest.mark.parametrize("layout, flags, inputs", [
    ("torchcfm", ["--inputs=x,c,t"], "x,c,t"), ("torchcfm", ["--inputs=t,x,c"], "t,x,c"), ("torchcfm", ["--inputs=c,x,t"], "c,x,t"),
    ("torchcfm", ["--inputs=c,t,x"], "c,t,x"), ("torchcfm", [], "x,c,t"), ("torchcfm", ["--time=first"], "t,x,c"),
    ("torchcfm", ["--still"], "x,c"), ("torchdiffeq", [], "t,x,c"), ("torchdiffeq", ["--time=last"], "x,c,t"),
    ("torchdiffeq", ["--still"], "x,c"), ("torchdiffeq", ["--inputs=x,t,c"], "x,t,c"), ("diffeqml_flow", [], "x,c,t")], ids=str)
def test_a_conditional_flow(layout, flags, inputs, tmp_path):
    """The first layer's inputs in the layout's order or the caller's; an Euler step is one evaluation of the field."""
    layers = [dense(16, 2 + 3 + ("t" in inputs)), dense(2, 16)]
    write_safetensors(tmp_path / "file", renumbered(named(layers, "net.{0}").items(), [0, 2]))
    words = [str(tmp_path / "file"), str(tmp_path / "models" / "mine"), f"--layout={layout}", "--condition=3", "--activation=tanh",
             *(flag for flag in flags if flag != "--still"), "--none", "0", "0", "0", f"--hyperserve={PROGRAM}"]
    assert main(words) == 0
    x, c = np.random.default_rng(1).standard_normal((5, 2)), np.random.default_rng(2).standard_normal((5, 3))
    with local.daemon(tmp_path / "models", PROGRAM) as address, hyperserve.Client(address) as client:
        end = client.solve("mine", state=x, condition=c, span=(0.25, 0.75), plan="euler:1/double").state
    seen = np.concatenate([{"x": x, "c": c, "t": np.full((5, 1), 0.25)}[name] for name in inputs.split(",")], 1)
    (first, bias), (last, shift) = layers
    slope = np.tanh(seen @ first.T + bias) @ last.T + shift
    if layout == "torchdiffeq":  # from data to noise, as a solve without a direction runs too
        assert json.loads((tmp_path / "models/mine/model.json").read_text())["direction"] == "data_to_noise"
    assert oracle.distance(end, x + 0.5 * slope) < 1e-6


def test_the_time_of_later_layers_stands_where_the_inputs_have_it(tmp_path):
    write_safetensors(tmp_path / "file", renumbered(named([dense(8, 2 + 3 + 1), dense(2, 9)], "net.{0}").items(), [0, 2]))
    for name, inputs, first in (("first", "t,x,c", True), ("last", "x,t,c", False)):
        import_model(tmp_path / "file", tmp_path / name, layout="torchdiffeq", choices=Choices(condition=3, inputs=inputs),
                     program=PROGRAM)
        field = json.loads((tmp_path / name / "model.json").read_text())["field"]
        cats = [layer["depth_cat"] for layer in field if "depth_cat" in layer]
        assert cats == [{"first": True} if first else {}] * 2


SQUASHED = dict(squashed_case()[1])
CONCATENATED = renumbered(named([dense(8, 2 + 3 + 1), dense(2, 8)], "net.{0}").items(), [0, 2])


@pytest.mark.parametrize("layout, tensors, flags, words", [
    ("torchcfm", CONCATENATED, ["--condition=3", "--inputs=x,c"], "inputs 'x,c': an order of x, c and t wanted"),
    ("torchcfm", CONCATENATED, ["--condition=3", "--inputs=x,t"], "an order of x, c and t wanted"),
    ("torchcfm", CONCATENATED, ["--condition=3", "--inputs=x,c,c"], "an order of x, c and t wanted"),
    ("torchcfm", CONCATENATED, ["--condition=4", "--inputs=x,c,t"], "an order of x and c wanted"),  # by its width it sees no time
    ("torchcfm", CONCATENATED, ["--condition=3", "--inputs=t,x,c", "--time=last"], "put the time on two sides of the state"),
    ("torchcfm", CONCATENATED, ["--inputs=x,t"], "inputs (--inputs): of a conditional flow"),
    ("torchcfm", CONCATENATED, ["--none", "0"], "none (--none): of a conditional flow"),
    ("torchdiffeq", SQUASHED, ["--condition=3"], "condition 3 (--condition): the concat-squash layers of this layout take none; write the "
     "module itself, by hyperserve.export"),
    ("torchdiffeq", SQUASHED, ["--time=last"], "time 'last' (--time): in these layers of FFJORD the time is no input"),
    ("torchdiffeq", dict(ffjord_block_case()[1]), ["--time=last"], "time 'last' (--time): in these layers of FFJORD"),
    ("diffeqml_classifier", classifier_tensors(1, True, 1)[0], ["--condition=3"], "condition 3 (--condition): the nets of a "
     "classifier's layout take none; those of torchcfm, torchdiffeq, diffeqml_flow do"),
])
def test_what_the_caller_says_is_never_dropped(layout, tensors, flags, words, tmp_path, capsys):
    save_zip(tmp_path / "file", tensors)
    assert main([str(tmp_path / "file"), str(tmp_path / "mine"), f"--layout={layout}", *flags, f"--hyperserve={PROGRAM}"]) == 1
    told = capsys.readouterr().err
    assert words in told and (layout in told or "of a conditional flow" in told) and not (tmp_path / "mine").exists()


def test_a_condition_of_layers_that_add_the_time(tmp_path):
    """FFJORD's ConcatLinear_v2: the time is no input of it, so that an order is one of state and condition."""
    weight, bias = dense(2, 2 + 3)
    (after, shift), rates = dense(2, 2), [dense(2, 1)[0], dense(2, 1)[0]]
    tensors = named([(weight, bias), (after, shift)], "layers.{0}._layer")
    tensors |= {f"layers.{i}._hyper_bias.weight": rate for i, rate in enumerate(rates)}
    save_zip(tmp_path / "file", tensors)
    x, c = np.random.default_rng(1).standard_normal((5, 2)), np.random.default_rng(2).standard_normal((5, 3))
    for inputs, seen in ((None, [x, c]), ("c,x", [c, x])):
        name = (inputs or "default").replace(",", "_")
        import_model(tmp_path / "file", tmp_path / "models" / name, layout="torchdiffeq",
                     choices=Choices(condition=3, inputs=inputs), program=PROGRAM)
        with local.daemon(tmp_path / "models", PROGRAM) as address, hyperserve.Client(address) as client:
            end = client.solve(name, state=x, condition=c, span=(0.25, 0.75), plan="euler:1/double").state
        hidden = np.tanh(np.concatenate(seen, 1) @ weight.T + bias + 0.25 * rates[0][:, 0])
        assert oracle.distance(end, x + 0.5 * (hidden @ after.T + shift + 0.25 * rates[1][:, 0])) < 1e-6


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
