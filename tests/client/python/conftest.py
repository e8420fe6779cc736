"""The real daemon for the tests of the Python package, on ports that the system chose."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import pytest

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # its threads wait by spinning; numpy reads it as it is imported

import numpy as np  # noqa: E402

import hyperserve  # noqa: E402
from hyperserve.tensor_files import write_safetensors  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[3]
BIN = pathlib.Path(os.environ.get("HYPERSERVE_BIN", ROOT / "build/release/bin"))
SOON = 60  # seconds that a quick event may take on a busy machine

# PyTorch stands in an environment of its own; last, so that it shadows nothing.
if os.environ.get("HYPERSERVE_TORCH_SITE"):
    sys.path.append(os.environ["HYPERSERVE_TORCH_SITE"])


class Daemon:
    """Serves `models`, or a copy in `folder`, until `stop`."""

    def __init__(self, folder, models, *flags, copy=True):
        self.models = folder / "models" if copy else models
        if copy:
            shutil.copytree(models, self.models)
        self._folder, self._flags = folder, flags
        self.start("127.0.0.1:0")

    def start(self, address):
        ports, self.log = self._folder / "ports.json", self._folder / "log"
        ports.unlink(missing_ok=True)
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                [BIN / "hyperserve", f"--models={self.models}", f"--ports_file={ports}", f"--address={address}",
                 "--admin_address=127.0.0.1:0", "--http_address=127.0.0.1:0", *self._flags], stderr=log, stdout=log)
        end = time.monotonic() + SOON
        while not ports.exists():
            assert self.process.poll() is None and time.monotonic() < end, self.log.read_text()
            time.sleep(0.01)
        self.__dict__.update(json.loads(ports.read_text()))

    def stop(self):
        self.process.terminate()
        assert self.process.wait(SOON) == 0, self.log.read_text()

    def run(self, *words):
        """hyperserve-client with this daemon's address: what it wrote, and its exit code."""
        return subprocess.run([BIN / "hyperserve-client", *words, f"--address={self.address}"], capture_output=True, text=True)


def write_model(folder, spec, tensors):
    """A model folder, new or written over; tensors as float32."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.json").write_text(json.dumps(spec))
    write_safetensors(folder / "weights.safetensors", {name: tensor.astype(np.float32) for name, tensor in tensors.items()})


@pytest.fixture(scope="session")
def daemon(tmp_path_factory):
    """Serves the models that ship; a file with models of its own has its own `daemon`."""
    daemon = Daemon(tmp_path_factory.mktemp("daemon"), ROOT / "models")
    yield daemon
    daemon.stop()


@pytest.fixture
def client(daemon):
    """A sync client of the file's daemon."""
    with hyperserve.Client(daemon.address) as client:
        yield client
