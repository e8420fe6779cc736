"""Files of tensors: what torch and safetensors write is read; what is hostile or broken is refused, and never run."""

import json
import pickle
import struct

import numpy as np
import pytest

from hyperserve.tensor_files import TensorFileError, read_tensors, write_safetensors
from torch_files import dict_opcodes, plain, save_legacy, save_zip, tensor_opcodes, whole

TENSORS = {
    "net.0.weight": np.arange(6, dtype=np.float32).reshape(2, 3) / 7,
    "net.0.bias": np.array([1e300, -2.5]),
    "net.1.weight": np.array([[0.5]], np.float16),
    "count": np.array(7),
}
SAVERS = [save_zip, save_legacy]


def same(found, wanted):
    assert list(found) == list(wanted)
    for name, array in wanted.items():
        assert found[name].dtype == array.dtype and found[name].shape == array.shape, name
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize("save", SAVERS)
def test_files_of_torch(save, tmp_path):
    save(tmp_path / "file", TENSORS)
    same(read_tensors(tmp_path / "file"), TENSORS)


def test_safetensors(tmp_path):
    floats = {name: tensor for name, tensor in TENSORS.items() if name != "count"}
    write_safetensors(tmp_path / "file", floats)
    same(read_tensors(tmp_path / "file"), floats)
    text = json.dumps({"__metadata__": {"format": "pt"},
                       "x": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}).encode()
    (tmp_path / "bf16").write_bytes(struct.pack("<Q", len(text)) + text + b"\x80\x3f\x40\xc0")
    same(read_tensors(tmp_path / "bf16"), {"x": np.array([1.0, -3.0], np.float32)})


def test_files_that_torch_itself_writes(tmp_path):
    try:
        import torch
    except (ImportError, OSError) as error:
        pytest.skip(f"no PyTorch: {error}")
    module = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 2, dtype=torch.double))
    state = module.state_dict()
    state["view"] = torch.arange(12.0).reshape(3, 4).t()[1:]
    state["parameter"] = module[0].weight
    wanted = {name: np.array(tensor.tolist(), str(tensor.dtype).removeprefix("torch.")) for name, tensor in state.items()}
    for zipped in (True, False):
        torch.save({"model": state, "epoch": 3}, tmp_path / "file", _use_new_zipfile_serialization=zipped)
        same(read_tensors(tmp_path / "file"), {f"model.{name}": array for name, array in wanted.items()})
        torch.save(module, tmp_path / "module", _use_new_zipfile_serialization=zipped)
        with pytest.raises(TensorFileError, match="Sequential, and only tensors are read"):
            read_tensors(tmp_path / "module")


def runs(marker):
    """Opcodes that would create the file `marker`, if a reader ran them."""
    return b"cos\nsystem\n(" + plain(f"touch {marker}") + b"tR"


@pytest.mark.parametrize("save", SAVERS)
def test_code_is_refused_and_does_not_run(save, tmp_path):
    marker = tmp_path / "ran"
    pickle.loads(whole(runs(marker)))
    assert marker.exists()  # the opcodes do run where a reader lets them
    marker.unlink()
    array = TENSORS["net.0.weight"]
    for opcodes in (runs(marker), dict_opcodes([("x", tensor_opcodes("0", array, True)), ("y", runs(marker))])):
        save(tmp_path / "file", {"x": array}, opcodes)
        with pytest.raises(TensorFileError, match="names os.system, and only tensors are read"):
            read_tensors(tmp_path / "file")
    for module, name in (("builtins", "eval"), ("torch", "load"), ("collections", "Counter"), ("torch._utils", "x")):
        save(tmp_path / "file", {"x": array}, f"c{module}\n{name}\n".encode() + b")R")
        with pytest.raises(TensorFileError, match=f"names {module}.{name}"):
            read_tensors(tmp_path / "file")
    assert not marker.exists()


@pytest.mark.parametrize("save", SAVERS)
@pytest.mark.parametrize("words", [
    {"shape": (2, 4)}, {"stride": (3, 2)}, {"offset": 1}, {"offset": -1}, {"shape": (-2, 3)}, {"stride": (-3, 1)},
    {"shape": (2,)}, {"shape": (1 << 40, 1 << 40)}])
def test_views_beyond_their_storage(save, words, tmp_path):
    array = TENSORS["net.0.weight"]
    save(tmp_path / "file", {"x": array}, dict_opcodes([("x", tensor_opcodes("0", array, False, **words))]))
    with pytest.raises(TensorFileError):
        read_tensors(tmp_path / "file")


@pytest.mark.parametrize("content", [
    b"", b"x", b"\x80", b"PK\x03\x04", b"\x80\x02.", whole(plain((1, 2))), struct.pack("<Q", 1 << 62),
    struct.pack("<Q", 2) + b"[]", struct.pack("<Q", 2) + b"{",
    struct.pack("<Q", 51) + b'{"x":{"dtype":"F32","shape":[9],"data_offsets":[0,4]}}'[:51]])
def test_other_files(content, tmp_path):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(TensorFileError, match=str(tmp_path)):
        read_tensors(tmp_path / "file")


@pytest.mark.parametrize("save", [*SAVERS, write_safetensors])
def test_damaged_files_end_in_one_kind_of_error(save, tmp_path):
    path = tmp_path / "file"
    save(path, {name: tensor for name, tensor in TENSORS.items() if name != "count"})
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(TensorFileError):
            read_tensors(path)
    random = np.random.default_rng(1)
    refused = 0
    for _ in range(500):
        damaged = bytearray(content)
        damaged[random.integers(len(content))] = random.integers(256)
        path.write_bytes(damaged)
        try:
            read_tensors(path)
        except TensorFileError:
            refused += 1
    assert refused > 50
