"""Checks who may include whom and who may know LibTorch, that modules have no cycles, and that each file includes the
header of every name of ours that it uses."""

import re

import cpp_names
import source_tree

MODEL = ["core/model/layers", "core/model/spec", "core/model/net", "core/model/repository"]
CORE = ["core/base", "core/plan", "core/io", "core/ode", *MODEL, "core/kernels", "core/engine",
        "core/engine/readable", "core/engine/fused", "core/engine/gradient"]
TRAINING = ["training/bounds", "training/data", "training/fit", "training/measure", "training/optimise"]
SERVER = ["server/clock", "server/metrics", "server/net", "server/batching", "server/registry", "server/calls",
          "server/rpc"]

# Folder: the folders of ours that its files may include beside their own. The longest matching row counts.
MAY_INCLUDE = {
    "core/base": [],
    "core/plan": ["core/base"],
    "core/io": ["core/base"],
    "core/ode": ["core/base", "core/plan"],
    "core/model/layers": ["core/base", "core/io"],
    "core/model/spec": ["core/base", "core/plan", "core/io", "core/model/layers"],
    "core/model/net": ["core/base", "core/plan", "core/io", "core/ode", "core/model/layers", "core/model/spec",
                       "core/model/repository"],
    "core/model/repository": ["core/base", "core/plan", "core/io", "core/model/spec"],
    "core/kernels": ["core/ode", "core/plan"],
    # Arrays (core/io/tensor.h) are plain data in the contracts of engine, batching and rpc.
    "core/engine": ["core/base", "core/plan", "core/io", "core/ode", *MODEL, "core/kernels", "core/engine/readable",
                    "core/engine/fused", "core/engine/gradient"],
    "core/engine/gradient": ["core/base", "core/plan", "core/io", "core/ode", *MODEL, "core/engine",
                             "core/engine/readable"],
    "core/engine/fused": ["core/base", "core/plan", "core/io", "core/ode", *MODEL, "core/kernels", "core/engine",
                          "core/engine/readable"],
    "core/engine/readable": ["core/base", "core/plan", "core/io", "core/ode", *MODEL, "core/engine"],
    "server/clock": [],
    "server/metrics": [],
    "server/net": [],
    "server/batching": ["core/base", "core/plan", "core/io", "core/engine", "server/metrics", "server/clock"],
    "server/registry": ["core/base", "core/plan", "core/io", *MODEL, "core/engine", "server/metrics",
                        "server/clock"],
    "server/calls": ["core/base", "core/plan", "core/io", *MODEL, "core/engine", "server/batching", "server/registry"],
    "server/rpc": ["proto", "core/base", "core/plan", "core/io", *MODEL, "server/batching", "server/registry",
                   "server/calls", "server/metrics", "server/clock"],
    "programs": ["core/base"],
    "server": ["proto", "programs", *CORE, *SERVER],
    "client": ["proto", "programs", "core/base", "core/plan", "core/io"],
    "training/data": ["proto", "programs", *CORE],
    "training/measure": ["programs", *CORE, "training/data"],
    "training/optimise": ["programs", *CORE, "training/data"],
    "training/fit": ["programs", *CORE, "training/data", "training/measure", "training/optimise"],
    "training/bounds": ["programs", *CORE, "training/data", "training/measure", "training/fit", "training/optimise"],
    "training": ["programs", *CORE, *TRAINING],
    "bench": ["proto", "programs", "client", "server", "training", *TRAINING, "tests", *CORE, *SERVER],
    "tests": ["proto", "programs", "client", "server", "training", *TRAINING, *CORE, *SERVER],
    "deploy": [],
    "proto": [],
}
# Generated protos: parsers only, not nets.
PROTO_TOO = re.compile(r"core/model/(layers|spec|repository)/\w*\.(cc|h)")

OURS = re.compile(r'^\s*#\s*include\s*"((?:core|programs|server|client|training|bench|tests|hyperserve)/[^"]+)"', re.M)
ANY = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.M)
TORCH = re.compile(r"(torch|ATen|c10|caffe2)/")

# Folders that must not reach a header of LibTorch, neither directly nor through headers of ours.
WITHOUT_TORCH = ("core/base/", "core/plan/", "core/io/", "core/ode/", "core/model/layers/", "core/model/spec/",
                 "core/kernels/", "programs/", "server/", "client/")
# CUDA code works on raw pointers and plain data, without Abseil.
WITHOUT_ABSEIL = ("core/kernels/",)
# Calls serve every protocol, so they must not reach the wire.
WITHOUT_WIRE = ("server/calls/",)
WIRE = re.compile(r"(grpc|grpcpp|google/protobuf|hyperserve/v1)/")


def folder_of(path):
    """The row of the table that `path` falls under, or None."""
    if path.startswith("hyperserve/"):
        return "proto"
    parts = path.split("/")[:-1]
    for length in range(len(parts), 0, -1):
        if "/".join(parts[:length]) in MAY_INCLUDE:
            return "/".join(parts[:length])
    return None


def may_include(file, header):
    own, other = folder_of(file), folder_of(header)
    return own == other or other in MAY_INCLUDE.get(own, []) or (other == "proto" and PROTO_TOO.fullmatch(file))


def reached(file, includes, seen):
    """All headers that `file` includes, directly or through headers of ours."""
    for header in includes.get(file, []):
        if header not in seen:
            seen.add(header)
            reached(header, includes, seen)
    return seen


def check_table(texts):
    includes = {f: ANY.findall(text) for f, text in texts.items()}
    for file, text in texts.items():
        own = folder_of(file)
        if own is None:
            yield f"{file}: its folder has no row in the table of tools/check_includes.py"
            continue
        for header in OURS.findall(text):
            if not may_include(file, header):
                yield f"{file}: {own} may not include {header}"
        everything = reached(file, includes, set())
        if file.startswith(WITHOUT_TORCH) and any(TORCH.match(header) for header in everything):
            yield f"{file}: reaches LibTorch's headers"
        if file.startswith(WITHOUT_WIRE) and any(WIRE.match(header) for header in everything):
            yield f"{file}: reaches the wire's headers"
        if file.startswith(WITHOUT_ABSEIL) and any(header.startswith("absl/") for header in everything):
            yield f"{file}: reaches Abseil's headers"
        for line in re.findall(r'#include "\.\.?/.*', text):
            yield f"{file}: {line} is not from the root"


def stem(file):
    return file.rsplit(".", 1)[0]


def check_cycles(texts):
    """A module is a header and the source of the same stem. It depends on the modules of the headers that they include."""
    arrows = {}
    for file, text in texts.items():
        others = {stem(header) for header in OURS.findall(text)} - {stem(file)}
        arrows.setdefault(stem(file), set()).update(others)
    path, done = [], set()

    def visit(module):
        path.append(module)
        for other in sorted(arrows.get(module, ())):
            if other in path:
                yield "a cycle of modules: " + " -> ".join([*path[path.index(other):], other])
            elif other not in done:
                yield from visit(other)
        done.add(path.pop())

    for module in sorted(arrows):
        if module not in done:
            yield from visit(module)


def homes_of_names(tree, texts):
    """{name: the headers that declare it}."""
    homes = {}
    for header, text in texts.items():
        if header.endswith((".h", ".cuh")):
            for name in cpp_names.declared_by_header(text):
                homes.setdefault(name, set()).add(header)
    for proto in tree.files:
        if proto.endswith(".proto"):
            generated = stem(proto.removeprefix("proto/"))
            for name in cpp_names.declared_by_proto(tree.text(proto)):
                homes.setdefault(name, set()).update({f"{generated}.pb.h", f"{generated}.grpc.pb.h"})
    return homes


def missing_includes(tree, texts):
    """Yields (file, headers, names) where a file uses names of ours and includes no header that declares them.

    Any one of the headers would do; they are those that the table allows, if it allows any. A source may rely on its
    own header."""
    homes = homes_of_names(tree, texts)
    for file, text in texts.items():
        own = texts.get(stem(file) + ".h", "") if not file.endswith(".h") else ""
        included = {file, *ANY.findall(text), *ANY.findall(own)}
        known = cpp_names.declared_within(text) | cpp_names.announced(text) | cpp_names.declared_within(own)
        for fixture in (header for header in included if header.startswith("tests/")):
            known |= cpp_names.declared_within(texts.get(fixture, ""))  # members that a test inherits
        missing = {}
        for name in cpp_names.used(text) - known:
            headers = homes.get(name, set())
            if headers and not headers & included:
                missing.setdefault(tuple(sorted(headers, key=len)), []).append(name)
        for headers, names in sorted(missing.items()):
            headers = [header for header in headers if not header.endswith(".grpc.pb.h")]
            yield file, [header for header in headers if may_include(file, header)] or headers, sorted(names)


def check(tree):
    texts = {f: tree.text(f) for f in tree.cpp()}
    yield from check_table(texts)
    yield from check_cycles(texts)
    for file, headers, names in missing_includes(tree, texts):
        yield f"{file}: uses {', '.join(names)}: include {' or '.join(headers)}"


def mend(tree):
    """adds missing includes where exactly one header would do and is allowed; `make format` sorts them"""
    texts = {f: tree.text(f) for f in tree.cpp()}
    for file, headers, _ in missing_includes(tree, texts):
        if len(headers) == 1 and may_include(file, headers[0]):
            path = tree.root / file
            text = path.read_text()
            last = [*ANY.finditer(text)][-1]
            path.write_text(f'{text[:last.end()]}\n#include "{headers[0]}"{text[last.end():]}')


if __name__ == "__main__":
    source_tree.main(check, __doc__, mend)
