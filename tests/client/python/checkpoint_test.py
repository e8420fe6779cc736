"""State dicts as training loops save them: within checkpoints, behind prefixes, under other names and with the time elsewhere."""

import collections
import subprocess
import sys

import numpy as np
import pytest

import hyperserve
import oracle
from conftest import BIN, Daemon
from hyperserve.import_model import import_model
from hyperserve.layers import LayoutError
from hyperserve.layouts import Choices
from hyperserve.tensor_files import TensorFileError, read_tensors, write_safetensors
from torch_files import dict_opcodes, plain, save_legacy, save_zip, tensor_opcodes

PROGRAM = BIN / "hyperserve"
RANDOM = np.random.default_rng(9)


def dense(out, width, dtype=np.float32):
    return (RANDOM.standard_normal((out, width)) / width**0.5).astype(dtype), (0.3 * RANDOM.standard_normal(out)).astype(dtype)


def named(layers, names):
    return {f"{name}.{part}": tensor for name, pair in zip(names, layers, strict=True)
            for part, tensor in zip(("weight", "bias"), pair, strict=True)}


def figures():
    """What stands beside tensors: figures of numpy, a count of milestones, lists."""
    return [("loss", plain(np.float64(0.1))), ("losses", plain(np.arange(3.0))), ("epoch", plain(3)),
            ("milestones", plain(collections.Counter({10: 1}))), ("groups", plain([{"lr": 0.1, "params": [0, 1]}]))]


def save_checkpoint(path, parts, save=save_zip, others=()):
    """Mappings of tensors by name, and `others`, pairs of a name and opcodes."""
    flat, items = {}, []
    for part, tensors in parts.items():
        pairs = []
        for name, tensor in tensors.items():
            pairs.append((name, tensor_opcodes(str(len(flat)), tensor, view=save is save_legacy)))
            flat[f"{part}.{name}"] = tensor
        items.append((part, dict_opcodes(pairs)))
    save(path, flat, dict_opcodes([*items, *others]))


def moments(tensors):
    """The state of Adam as mappings within each other would name it: state.0.exp_avg."""
    return {f"state.{i}.{name}": np.ones_like(tensor) for i, tensor in enumerate(tensors.values()) for name in ("exp_avg", "exp_avg_sq")}


HIDDEN = [dense(16, 4), dense(16, 16), dense(16, 16), dense(3, 16)]
EVERY = [dense(16, 4), dense(16, 17), dense(3, 17)]
DOUBLE = [dense(20, 3, np.float64), dense(2, 20, np.float64)]
LAST = [dense(16, 3), dense(16, 16), dense(2, 16)]
LAST_EVERY = [dense(16, 3), dense(16, 17), dense(2, 17)]
STILL = [dense(16, 2), dense(16, 16), dense(2, 16)]


def each_last(layers):
    """The oracle of nets in which a DepthCat stands before every layer."""
    return oracle.mlp([(np.roll(weight, 1, 1), bias) for weight, bias in layers], ["softplus", "tanh"], "every")


CASES = {  # layout, layers, their names, the oracle, dimensions
    "prefixed": ("torchcfm", HIDDEN, [f"module.net.{i}" for i in (0, 2, 4, 6)], oracle.mlp(HIDDEN, ["selu"] * 3, "last"), 3),
    "in_double": ("torchcfm", DOUBLE, ["_orig_mod.net.0", "_orig_mod.net.2"], oracle.mlp(DOUBLE, ["selu"], "last"), 2),
    "blocks": ("torchdiffeq", HIDDEN, [f"func.blocks.{i}.linear" for i in range(4)], oracle.mlp(HIDDEN, ["tanh"] * 3, "first"), 3),
    "nested": ("torchdiffeq", HIDDEN, ["layers.0.0", "layers.1.0", "layers.2.0", "layers.10"],
               oracle.mlp(HIDDEN, ["tanh"] * 3, "first"), 3),
    "by_words": ("torchdiffeq", HIDDEN, ["fc_in", "fc_h1", "fc_h2", "fc_out"], oracle.mlp(HIDDEN, ["tanh"] * 3, "first"), 3),
    "every_layer": ("torchdiffeq", EVERY, [f"module.odefunc.net.{i}" for i in (0, 2, 4)], oracle.mlp(EVERY, ["tanh"] * 2, "every"), 3),
    "depth_cat": ("diffeqml_flow", LAST, [f"1.defunc.m.net.{i}" for i in (1, 3, 5)],
                  oracle.mlp(LAST, ["softplus", "tanh"], "last"), 2),
    "depth_cats": ("diffeqml_flow", LAST_EVERY, [f"vf.vf.{i}" for i in (1, 4, 7)], each_last(LAST_EVERY), 2),
    "newer_torchdyn": ("diffeqml_flow", STILL, [f"model.1.vf.vf.{i}" for i in (0, 2, 4)],
                       oracle.mlp(STILL, ["softplus", "tanh"], "none"), 2),
}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoints")
    for i, (name, (layout, layers, names, _, _)) in enumerate(CASES.items()):
        tensors = named(layers, names)
        if i % 3 == 2:  # in the order of names, as safetensors are written
            write_safetensors(folder / "file", dict(sorted(tensors.items())))
        else:
            save_checkpoint(folder / "file", {"state_dict": tensors, "optimizer": moments(tensors)},
                            (save_zip, save_legacy)[i % 3], figures())
        import_model(folder / "file", folder / "models" / name, layout=layout, program=PROGRAM)
    daemon = Daemon(folder / "daemon", folder / "models")
    with hyperserve.Client(daemon.address) as client:
        yield client
    daemon.stop()


@pytest.mark.parametrize("name", CASES)
def test_answers_are_those_of_the_oracle(served, name):
    *_, field, width = CASES[name]
    start = RANDOM.standard_normal((1000, width))
    found = served.solve(name, state=start, plan="rk4:4/double").state
    assert oracle.distance(found, oracle.solve(field, start, 4)) <= 1e-12


def test_names_by_words_in_safetensors_are_ordered_by_their_widths(tmp_path):
    tensors = named(HIDDEN, ["fc_in", "fc_h1", "fc_h2", "fc_out"])
    write_safetensors(tmp_path / "file", dict(sorted(tensors.items())))
    save_zip(tmp_path / "other", tensors)
    for name in ("file", "other"):
        import_model(tmp_path / name, tmp_path / f"{name}_model", layout="torchdiffeq", program=PROGRAM)
    written = [read_tensors(tmp_path / f"{name}_model/weights.safetensors") for name in ("file", "other")]
    assert written[0].keys() == written[1].keys() and all((written[1][key] == one).all() for key, one in written[0].items())
    write_safetensors(tmp_path / "file", dict(sorted(named(HIDDEN, ["enter", "left", "right", "leave"]).items())))
    with pytest.raises(LayoutError, match="the widths of the layers fit in several orders"):
        import_model(tmp_path / "file", tmp_path / "model", layout="torchdiffeq", program=PROGRAM)
    swapped = named(HIDDEN, ["a_enter", "right", "left", "z_leave"])  # sorted by name, these fit in a wrong order
    save_zip(tmp_path / "other", swapped)
    import_model(tmp_path / "other", tmp_path / "swapped", layout="torchdiffeq", program=PROGRAM)
    np.testing.assert_array_equal(read_tensors(tmp_path / "swapped/weights.safetensors")["field.3.weight"], swapped["right.weight"])
    write_safetensors(tmp_path / "file", dict(sorted(swapped.items())))
    with pytest.raises(LayoutError, match="fit in several orders, of which neither the file nor numbers in these names tell one"):
        import_model(tmp_path / "file", tmp_path / "model", layout="torchdiffeq", program=PROGRAM)
    write_safetensors(tmp_path / "file", named([dense(8, 4), dense(3, 9), dense(5, 5)], ["a", "b", "c"]))
    with pytest.raises(LayoutError, match="a, b, c: the widths of the layers fit in no order"):
        import_model(tmp_path / "file", tmp_path / "model", layout="torchdiffeq", program=PROGRAM)


def test_one_net_of_several_is_chosen(tmp_path):
    nets = {part: named([dense(8, 3), dense(2, 8)], ["net.0", "net.2"]) for part in ("net_model", "ema_model")}
    save_checkpoint(tmp_path / "file", nets, others=figures())
    words = r"not of layout torchcfm: .*; it holds several nets, net_model and ema_model: choose one \(--part\)"
    with pytest.raises(LayoutError, match=words):
        import_model(tmp_path / "file", tmp_path / "model", layout="torchcfm", program=PROGRAM)
    with pytest.raises(LayoutError, match="it has no part ema; there are net_model, ema_model"):
        import_model(tmp_path / "file", tmp_path / "model", layout="torchcfm", choices=Choices(part="ema"), program=PROGRAM)
    done = subprocess.run([sys.executable, "-m", "hyperserve.import_model", tmp_path / "file", tmp_path / "model", "--layout=torchcfm",
                           "--part=ema_model", f"--hyperserve={PROGRAM}"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    written = read_tensors(tmp_path / "model/weights.safetensors")
    np.testing.assert_array_equal(written["field.1.weight"], nets["ema_model"]["net.0.weight"])


def test_no_code_of_a_checkpoint_runs(tmp_path):
    tensors = named(STILL, ["net.0", "net.2", "net.4"])
    for harm in (b"cos\nsystem\n" + plain(("true",)) + b"R", b"cbuiltins\neval\n" + plain(("1",)) + b"R",
                 b"cnumpy\nload\n" + plain(("file",)) + b"R"):
        save_checkpoint(tmp_path / "file", {"state_dict": tensors}, others=[("harm", harm)])
        with pytest.raises(TensorFileError, match="it names (os.system|builtins.eval|numpy.load), and only tensors are read"):
            import_model(tmp_path / "file", tmp_path / "model", layout="torchcfm", program=PROGRAM)
