"""Generates the messages of proto/hyperserve/v1 while the package is built."""

import pathlib
import tempfile
from typing import Any

from grpc_tools import protoc
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PROTOS = ("hyperserve/v1/hyperserve.proto", "hyperserve/v1/admin.proto")


class StubsHook(BuildHookInterface[Any]):
    """A wheel gets the stubs; a source distribution gets the protos, from which a wheel can be built anywhere."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        here = pathlib.Path(self.root)
        protos = here / "proto" if (here / "proto").is_dir() else here.parent.parent / "proto"
        if self.target_name == "sdist":
            for proto in PROTOS:
                build_data["force_include"][str(protos / proto)] = f"proto/{proto}"
            return
        self.stubs = tempfile.TemporaryDirectory()
        out = self.stubs.name
        flags = [f"--proto_path={protos}", f"--python_out={out}", f"--pyi_out={out}", f"--grpc_python_out={out}"]
        if protoc.main(["protoc", *flags, *PROTOS]) != 0:
            raise RuntimeError(f"protoc failed on {protos}")
        for file in sorted(pathlib.Path(out).rglob("*.py*")):
            build_data["force_include"][str(file)] = str(file.relative_to(out))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self.target_name != "sdist":
            self.stubs.cleanup()
