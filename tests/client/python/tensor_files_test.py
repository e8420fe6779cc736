"""Files of tensors: what torch and safetensors write is read; what is hostile or broken is refused, and never run."""

import json
import pickle
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest

from hyperserve.pickles import TensorFileError
from hyperserve.tensor_files import read_tensors, write_safetensors
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


@pytest.mark.parametrize("length", (0x80, 0x280, 0x480))
def test_headers_whose_length_begins_like_a_pickle(length, tmp_path):
    header = json.dumps({"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode().ljust(length)
    path = tmp_path / "x.safetensors"
    path.write_bytes(struct.pack("<Q", length) + header + np.float32(2).tobytes())
    assert read_tensors(path)["x"] == 2


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
    for module, name in (("builtins", "eval"), ("torch", "load"), ("collections", "deque"), ("torch._utils", "x")):
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


def shared_mappings(depth):
    """2^depth names of one tensor: each mapping holds the one before twice, by way of the memo."""
    opcodes = dict_opcodes([("x", tensor_opcodes("0", np.zeros(1, np.float32), False))]) + b"q\x01"
    for _ in range(depth):
        opcodes += b"0}(" + plain("a") + b"h\x01" + plain("b") + b"h\x01" + b"uq\x01"
    return opcodes.replace(b"0}(", b"}(")


def deep_key(depth):
    """A mapping whose key is a tuple of 2^depth parts, which takes as long to hash or to print."""
    return b"}" + b")q\x01" + b"h\x01h\x01\x86q\x01" * depth + b"K\x01s"


def header(entries, data):
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text + data


ONE = np.zeros(1, np.float32)
BOMBS = {
    "expanded": lambda path: save_zip(path, {"x": ONE}, dict_opcodes(
        [("x", tensor_opcodes("0", ONE, False, shape=(1 << 20, 1 << 20), stride=(0, 0)))])),
    "expanded legacy": lambda path: save_legacy(path, {"x": ONE}, dict_opcodes(
        [("x", tensor_opcodes("0", ONE, True, shape=(1 << 30,), stride=(0,)))])),
    "many names of one storage": lambda path: save_zip(path, {"x": np.zeros(100_000)}, dict_opcodes(
        [(f"x{i}", tensor_opcodes("0", np.zeros(100_000), False)) for i in range(100)])),
    "shared mappings": lambda path: save_zip(path, {"x": ONE}, shared_mappings(40)),
    "memo": lambda path: save_legacy(path, {"x": ONE}, b"}r\xff\xff\xff\x7f" + b"}r\xff\xff\xff\x6f" + b"\x86"),
    "deep key": lambda path: save_zip(path, {"x": ONE}, deep_key(40)),
    "deep reference": lambda path: save_zip(path, {"x": ONE}, b")q\x01" + b"h\x01h\x01\x86q\x01" * 40 + b"Q"),
    "byte array": lambda path: path.write_bytes(b"\x80\x05\x96" + struct.pack("<Q", 1 << 33) + b"."),
    "deflated": lambda path: compressed(path, np.zeros(1 << 24, np.float32)),
    "safetensors on the same bytes": lambda path: path.write_bytes(header(
        {f"x{i}": {"dtype": "U8", "shape": [1 << 20], "data_offsets": [0, 1 << 20]} for i in range(100)}, bytes(1 << 20))),
}


def compressed(path, array):
    save_zip(path.with_suffix(".plain"), {"x": array})
    with zipfile.ZipFile(path.with_suffix(".plain")) as source, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():
            target.writestr(name, source.read(name))


@pytest.mark.parametrize("kind", BOMBS)
def test_memory_is_bounded_by_the_file(kind, tmp_path):
    path = tmp_path / "file"
    BOMBS[kind](path)
    tracemalloc.start()
    with pytest.raises(TensorFileError) as caught:
        read_tensors(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert ("not a whole file" in str(caught.value)) == (kind == "byte array")  # of which nothing is made at all
    assert peak < 12 * path.stat().st_size + (1 << 20)


def test_tensors_on_the_same_numbers(tmp_path):
    """As torchdyn stores a net twice."""
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    opcodes = tensor_opcodes("0", array, False)
    save_zip(tmp_path / "file", {"x": array}, dict_opcodes([("a", opcodes), ("b", opcodes)]))
    same(read_tensors(tmp_path / "file"), {"a": array, "b": array})


@pytest.mark.parametrize("opcodes, words", [
    (b"}" + plain("x") + b"ctorch._utils\n_rebuild_tensor_v2\n(" + b"(" + plain("storage") + plain("<f4") + plain("0") + plain("cpu")
     + plain(1) + b"tQ" + plain(0) + plain((1,)) + plain((1,)) + b"tRs", "a storage whose type is not one of torch's"),
    (b"}" + plain("x") + b"ctorch._utils\n_rebuild_parameter\n" + plain((1, 2)) + b"Rs", "a parameter without a tensor"),
    (b"}" + plain("x") + plain((1, 2)) + b"Rs", "a pickle that calls a str"),
    (b"}(" + plain("x") + b"u", "a key without a value"), (b"}t", "a mark which is not there"), (b"h\x07", "number 7 of its memo"),
    (b"]" + plain("x") + plain(1) + b"s", "puts items into a list"), (plain(3), "int found, a mapping of tensors wanted"),
    (b"(i", "instruction INST|not a whole file"), (b"]", "list found"), (b"}" * 0 + b"s", "a value which is not there"),
    (b"}" + plain("a") + (b"}" + plain("a")) * 40 + b"}" + b"s" * 41, "nested more than 32 deep"),
])
def test_pickles_that_are_no_mappings_of_tensors(opcodes, words, tmp_path):
    save_zip(tmp_path / "file", {"x": ONE}, opcodes)
    with pytest.raises(TensorFileError, match=words):
        read_tensors(tmp_path / "file")


@pytest.mark.parametrize("entry, words", [
    ({"dtype": "F8", "shape": [1], "data_offsets": [0, 1]}, "x: dtype F8 is not known"),
    ({"shape": [1], "data_offsets": [0, 4]}, "x: an entry without a dtype"), (3, "x: an entry without a dtype"),
    ({"dtype": "F32", "data_offsets": [0, 4]}, "x: shape is no list"),
    ({"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}, "x: shape is no list"),
    ({"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}, "x: shape is no list"),
    ({"dtype": "F32", "shape": [1], "data_offsets": [0]}, "x: data_offsets hold a begin and an end"),
    ({"dtype": "F32", "shape": [1], "data_offsets": [0, 8]}, "x: its bytes 0 to 8 do not fit"),
])
def test_headers_of_safetensors(entry, words, tmp_path):
    (tmp_path / "file").write_bytes(header({"x": entry}, bytes(4)))
    with pytest.raises(TensorFileError, match=words):
        read_tensors(tmp_path / "file")


def test_what_is_not_written_is_named(tmp_path):
    with pytest.raises(TensorFileError, match="x: numbers of int64 are not written"):
        write_safetensors(tmp_path / "file", {"x": np.zeros(3, np.int64)})


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
