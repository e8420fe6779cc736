"""Writes files as torch.save does, opcode by opcode, without torch: the older format and the zip one."""

import pickle
import struct
import zipfile

STORAGES = {"f4": "FloatStorage", "f8": "DoubleStorage", "f2": "HalfStorage", "i8": "LongStorage", "b1": "BoolStorage"}


def plain(value):
    """The opcodes of a text, number or tuple of these."""
    return pickle.dumps(value, 2)[2:-1]


def tensor_opcodes(key, array, view, shape=None, stride=None, offset=0):
    storage = b"ctorch\n" + STORAGES[array.dtype.str[1:]].encode() + b"\n"
    last = b"N" if view else b""
    persistent = b"(" + plain("storage") + storage + plain(key) + plain("cpu") + plain(array.size) + last + b"tQ"
    shape = array.shape if shape is None else shape
    stride = tuple(step // array.itemsize for step in array.strides) if stride is None else stride
    rest = plain(offset) + plain(tuple(shape)) + plain(tuple(stride)) + b"\x89" + b"ccollections\nOrderedDict\n)R"
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + persistent + rest + b"tR"


def dict_opcodes(items):
    body = b"".join(plain(name) + value for name, value in items)
    return b"ccollections\nOrderedDict\n)R(" + body + b"u"


def state_dict_opcodes(tensors, view):
    return dict_opcodes((name, tensor_opcodes(str(i), array, view)) for i, (name, array) in enumerate(tensors.items()))


def whole(opcodes):
    return b"\x80\x02" + opcodes + b"."


def save_zip(path, tensors, opcodes=None):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", whole(opcodes or state_dict_opcodes(tensors, view=False)))
        archive.writestr("archive/byteorder", "little")
        for i, array in enumerate(tensors.values()):
            archive.writestr(f"archive/data/{i}", array.tobytes())
        archive.writestr("archive/version", "3\n")


def save_legacy(path, tensors, opcodes=None):
    with open(path, "wb") as file:
        for value in (0x1950A86A20F9469CFC6C, 1001, {"protocol_version": 1001, "little_endian": True, "type_sizes": {}}):
            file.write(pickle.dumps(value, 2))
        file.write(whole(opcodes or state_dict_opcodes(tensors, view=True)))
        file.write(pickle.dumps([str(i) for i in range(len(tensors))], 2))
        for array in tensors.values():
            file.write(struct.pack("<q", array.size) + array.tobytes())
