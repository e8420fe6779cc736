"""A small U-Net of torch whose code is the field of a model: answers of the daemon against torch, learned tables, refusals."""

import json
import shutil
import subprocess

import numpy as np
import pytest

from conftest import BIN, Daemon
from torch_nets import PROGRAM, functional, nn, torch

import hyperserve
import hyperserve.torch

if shutil.which("g++") is None:
    pytest.skip("no C++ compiler: AOTInductor wants g++", allow_module_level=True)


class UNet(nn.Module):
    """Images [1, 8, 8], one level down and up again, with an embedding of the depth."""

    def __init__(self, width=4):
        super().__init__()
        self.time, self.enter = nn.Linear(2, width), nn.Conv2d(1, width, 3, padding=1)
        self.norm = nn.GroupNorm(2, width)
        self.down = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.middle = nn.Conv2d(2 * width, 2 * width, 3, padding=1)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.leave = nn.Conv2d(2 * width, 1, 3, padding=1)

    def forward(self, s, z):
        time = self.time(torch.stack([torch.sin(3 * s), torch.cos(3 * s)], 1))[:, :, None, None]
        fine = functional.silu(self.norm(self.enter(z)) + time)
        coarse = functional.silu(self.down(fine))
        coarse = coarse + functional.silu(self.middle(coarse))
        return self.leave(torch.cat([fine, self.up(coarse)], 1)) - 0.5 * z


def rk4(field, z, steps, begin=0.0, end=1.0):
    eps = (end - begin) / steps
    with torch.no_grad():
        for k in range(steps):
            s = begin + k * eps
            at = lambda depth, x: field(torch.full((len(x),), depth, dtype=x.dtype), x)  # noqa: E731
            a = at(s, z)
            b = at(s + eps / 2, z + eps / 2 * a)
            c = at(s + eps / 2, z + eps / 2 * b)
            d = at(s + eps, z + eps * c)
            z = z + eps / 6 * (a + 2 * b + 2 * c + d)
    return z


@pytest.fixture(scope="module")
def field():
    torch.manual_seed(3)
    return UNet().eval()


@pytest.fixture(scope="module", params=["cpu", "cuda"])
def device(request):
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU that torch can compile for")
    return request.param


@pytest.fixture(scope="module")
def repository(field, device, tmp_path_factory):
    folder = tmp_path_factory.mktemp("packages") / "models"
    example = torch.randn(4, 1, 8, 8)
    hyperserve.torch.export_package(field, folder / "unet", example=example, device=device, program=PROGRAM)
    return folder


@pytest.fixture(scope="module")
def client(repository, device, tmp_path_factory):
    daemon = Daemon(tmp_path_factory.mktemp("daemon"), repository, "--allow_code=unet", f"--device={device}", copy=False)
    with hyperserve.Client(daemon.address) as client:
        yield client
    daemon.stop()


@pytest.mark.parametrize("rows", [1, 3, 70])
def test_answers_are_those_of_torch(client, field, rows):
    z = torch.randn(rows, 1, 8, 8, generator=torch.Generator().manual_seed(rows))
    wanted = rk4(field.double(), z.double(), 4).float()
    field.float()
    served = client.solve("unet", state=z.numpy(), plan="rk4:4")
    assert np.abs(served.state - wanted.numpy()).max() <= 1e-4 * float(wanted.abs().max())
    exact = rk4(field.double(), z.double(), 64).float()
    field.float()
    adaptive = client.solve("unet", state=z.numpy(), plan="dopri5:1e-6")
    assert np.abs(adaptive.state - exact.numpy()).max() <= 1e-4 * float(exact.abs().max())


def test_samples_flow_through_it(client, field):
    drawn = client.sample("unet", 5, seed=1, plan="rk4:4")
    more = client.sample("unet", 70, seed=1, plan="rk4:4")
    assert np.abs(drawn.samples - more.samples[:5]).max() < 1e-5  # no promise of bits


def test_refusals_say_why(client):
    z = np.zeros((2, 1, 8, 8), np.float32)
    with pytest.raises(hyperserve.InvalidArgumentError, match="computes in float32: no tier double"):
        client.solve("unet", state=z, plan="rk4:4/double")
    with pytest.raises(hyperserve.InvalidArgumentError, match="no derivatives, so no log-density"):
        client.log_prob("unet", z, plan="rk4:4")
    with pytest.raises(hyperserve.InvalidArgumentError, match="has no derivatives"):
        client.solve_vjp("unet", state=z, cotangent=z, plan="rk4:4")


def test_nothing_runs_it_unasked(repository, tmp_path):
    done = subprocess.run([PROGRAM, f"--check={repository}"], capture_output=True, text=True)
    assert done.returncode == 0 and "field.pt2: code, SHA-256" in done.stdout and "--allow_code=unet" in done.stdout
    done = subprocess.run([PROGRAM, f"--models={repository}", "--address=127.0.0.1:0", "--admin_address=127.0.0.1:0",
                           "--http_address=127.0.0.1:0"], capture_output=True, text=True, timeout=60)  # fmt: skip
    assert done.returncode == 1 and "name the model in --allow_code" in done.stdout + done.stderr


def test_it_is_calibrated_and_given_learned_tables(repository, device, tmp_path):
    models = tmp_path / "models"
    shutil.copytree(repository, models)
    recipe = {"format": 1, "name": "unet", "seed": 1, "data": {"density": "pinwheel"},
              "hypersolver": {"solver": {"learned": {"direction": "noise_to_data", "evaluations": [1, 2], "coefficients": "channel"}},
                              "optimiser": {"iterations": 40, "batch": 64, "rate": 0.002, "final_rate": 1e-5, "clip_norm": 1},
                              "truth": "dopri5:1e-5", "truth_rows": 256, "check_every": 10, "check_rows": 128, "probe_rows": 32},
              "calibrate": {"plans": ["euler:1", "euler:2", "euler:4", "midpoint:1", "rk4:1", "rk4:2"], "reference": "dopri5:1e-7",
                            "rows": 128, "batch": 64, "default_error": 0.05, "tiers": ["exact"]}}  # fmt: skip
    (tmp_path / "unet.json").write_text(json.dumps(recipe))

    def train(command, *flags):
        return subprocess.run([BIN / "hyperserve-train", command, f"--recipe={tmp_path / 'unet.json'}", f"--models={models}",
                               f"--device={device}", *flags], capture_output=True, text=True)  # fmt: skip

    refused = train("calibrate")
    assert refused.returncode == 1 and "--allow_code" in refused.stderr
    for command in ("calibrate", "hypersolver"):
        done = train(command, "--allow_code=unet")
        assert done.returncode == 0, done.stderr
    calibration = json.loads((models / "unet/calibration.json").read_text())
    assert calibration["reference"] == "dopri5:1e-6"  # float32 knows no finer one
    generation = json.loads((models / "unet/hypersolvers/learned/1/calibration.json").read_text())
    errors = {one["plan"]: one["error_mean"] for one in calibration["plans"] + generation["plans"]}
    assert errors["learned:2"] < min(errors["euler:2"], errors["midpoint:1"])
    daemon = Daemon(tmp_path, models, "--allow_code=unet", f"--device={device}", copy=False)
    with hyperserve.Client(daemon.address) as client:
        assert client.sample("unet", 3, plan="learned:2").info.plan == "learned:2"
    daemon.stop()
