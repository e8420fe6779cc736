"""Checks that the wire only grows: compares proto/ with the committed descriptor set.

Refuses parts that were removed, renamed, retyped or renumbered. --update (`make descriptors`) adds new parts to the set. A
field may change its type from a message without fields to another message, since no old data is lost."""

import pathlib
import subprocess
import sys
import tempfile

from google.protobuf import descriptor_pb2

import source_tree

COMMITTED = "proto/hyperserve/v1/descriptor.pb"
Field = descriptor_pb2.FieldDescriptorProto


def build(tree):
    """The descriptor set of all tracked protos, as bytes."""
    protos = [f.removeprefix("proto/") for f in tree.files if f.startswith("proto/") and f.endswith(".proto")]
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "set.pb"
        subprocess.run(["protoc", "--proto_path=proto", f"--descriptor_set_out={out}", *protos], cwd=tree.root,
                       check=True)
        return out.read_bytes()


def parts(encoded):
    """Everything that a peer may depend on: {where: what}. Fields and values are keyed by number, methods by name."""
    found = {}
    for file in descriptor_pb2.FileDescriptorSet.FromString(encoded).file:
        for message in file.message_type:
            add_message(found, f"{file.package}.{message.name}", message)
        for enum in file.enum_type:
            add_enum(found, f"{file.package}.{enum.name}", enum)
        for service in file.service:
            for m in service.method:
                streams = ("stream " * m.client_streaming, "stream " * m.server_streaming)
                found[f"rpc {file.package}.{service.name}/{m.name}"] = (
                    f"({streams[0]}{m.input_type}) returns ({streams[1]}{m.output_type})")
    return found


def add_message(found, name, message):
    found[f"message {name}"] = "message"
    for f in message.field:
        choice = message.oneof_decl[f.oneof_index].name if f.HasField("oneof_index") else ""
        found[f"field {name} = {f.number}"] = " ".join(
            [Field.Label.Name(f.label), Field.Type.Name(f.type), f.type_name, f.name, choice]).strip()
    for nested in message.nested_type:
        add_message(found, f"{name}.{nested.name}", nested)
    for enum in message.enum_type:
        add_enum(found, f"{name}.{enum.name}", enum)


def add_enum(found, name, enum):
    for value in enum.value:
        found[f"value {name} = {value.number}"] = value.name


def grew_from_empty(old, was, now):
    """True if only the message type of the field has changed, and the old message had no fields."""
    was, now = was.split(" "), now.split(" ")
    if "TYPE_MESSAGE" not in was or was[:2] + was[3:] != now[:2] + now[3:]:
        return False
    return not any(part.startswith(f"field {was[2].removeprefix('.')} = ") for part in old)


def broken(old, new):
    for where, what in old.items():
        if where not in new:
            yield f"{where}: removed, was {what}"
        elif new[where] != what and not grew_from_empty(old, what, new[where]):
            yield f"{where}: was {what}, is {new[where]}"


def check(tree):
    new = parts(build(tree))
    committed = tree.root / COMMITTED
    if not committed.is_file():
        yield f"{COMMITTED}: missing; run `make descriptors`"
        return
    old = parts(committed.read_bytes())
    yield from broken(old, new)
    for where in new.keys() - old.keys():
        yield f"{where}: not in {COMMITTED}; run `make descriptors`"


def update(tree):
    encoded = build(tree)
    committed = tree.root / COMMITTED
    problems = list(broken(parts(committed.read_bytes()), parts(encoded))) if committed.is_file() else []
    if problems:
        sys.exit("\n".join(["refused, the wire only grows:", *problems]))
    committed.write_bytes(encoded)


if __name__ == "__main__":
    if sys.argv[1:] == ["--update"]:
        update(source_tree.SourceTree(pathlib.Path(__file__).resolve().parent.parent))
    else:
        source_tree.main(check, __doc__)
