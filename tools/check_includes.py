"""Who may include whom, and who may know LibTorch."""

import re

import source_tree

MODEL = ["core/model/layers", "core/model/spec", "core/model/net", "core/model/repository"]
CORE = ["core/base", "core/plan", "core/io", "core/ode", *MODEL, "core/kernels", "core/engine"]
SERVER = ["server/clock", "server/metrics", "server/batching", "server/registry", "server/rpc"]

# Folder: what its files may include of ours, beside their own folder. The longest matching row counts. A row for a
# file's stem (core/model/spec/spec_json) covers that file alone.
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
    # Arrays (core/io/tensor.h) are the plain data that cross the engine's contract, and so batching's and rpc's.
    "core/engine": ["core/base", "core/plan", "core/io", "core/ode", *MODEL, "core/kernels"],
    "server/clock": [],
    "server/metrics": [],
    "server/batching": ["core/base", "core/plan", "core/io", "core/engine", "server/metrics", "server/clock"],
    "server/registry": ["core/base", "core/plan", "core/io", *MODEL, "core/engine", "server/metrics",
                        "server/clock"],
    "server/rpc": ["proto", "core/base", "core/plan", "core/io", *MODEL, "server/batching", "server/registry",
                   "server/metrics", "server/clock"],
    "server": ["proto", *CORE, *SERVER],
    "client": ["proto", "core/base", "core/plan", "core/io"],
    "training": ["proto", "client", *CORE],
    "bench": ["proto", "client", "server", "training", "tests", *CORE, *SERVER],
    "tests": ["proto", "client", "server", "training", *CORE, *SERVER],
    "deploy": [],
    "proto": [],
}
# Generated protos in the parsers only, not in the nets.
PROTO_TOO = re.compile(r"core/model/(layers|spec|repository)/\w*\.(cc|h)")

OURS = re.compile(r'^\s*#\s*include\s*"((?:core|server|client|training|bench|tests|hyperserve)/[^"]+)"', re.M)
ANY = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.M)
TORCH = re.compile(r"(torch|ATen|c10|caffe2)/")

# Folders from whose files no LibTorch header may be reached, directly or through headers of ours.
WITHOUT_TORCH = ("core/base/", "core/plan/", "core/io/", "core/ode/", "core/model/layers/", "core/model/spec/", "core/kernels/", "server/", "client/")
# CUDA code is raw pointers and plain data: no Abseil either.
WITHOUT_ABSEIL = ("core/kernels/",)


def folder_of(path):
    """The row of the table that `path` falls under, or None."""
    if path.startswith("hyperserve/"):
        return "proto"
    parts = path.split("/")[:-1]
    for length in range(len(parts), 0, -1):
        if "/".join(parts[:length]) in MAY_INCLUDE:
            return "/".join(parts[:length])
    return None


def reached(file, includes, seen):
    """All headers that `file` includes, ours followed."""
    for header in includes.get(file, []):
        if header not in seen:
            seen.add(header)
            reached(header, includes, seen)
    return seen


def check(tree):
    texts = {f: tree.text(f) for f in tree.cpp()}
    includes = {f: ANY.findall(text) for f, text in texts.items()}
    for file, text in texts.items():
        own = folder_of(file)
        if own is None:
            yield f"{file}: its folder has no row in the table of tools/check_includes.py"
            continue
        for header in OURS.findall(text):
            other = folder_of(header)
            if other == "proto" and PROTO_TOO.fullmatch(file):
                continue
            if other != own and other not in MAY_INCLUDE[own]:
                yield f"{file}: {own} may not include {header}"
        everything = reached(file, includes, set())
        if file.startswith(WITHOUT_TORCH) and any(TORCH.match(header) for header in everything):
            yield f"{file}: reaches LibTorch's headers"
        if file.startswith(WITHOUT_ABSEIL) and any(header.startswith("absl/") for header in everything):
            yield f"{file}: reaches Abseil's headers"
        for line in re.findall(r'#include "\.\.?/.*', text):
            yield f"{file}: {line} is not from the root"


if __name__ == "__main__":
    source_tree.main(check, __doc__)
