"""Solves of bench_solve on the CPU beside the same in eager PyTorch, each on one thread, and error control beside torchdiffeq.

    PYTHONPATH=build/release/python-package taskset -c 2 python3 bench/cpu_peers.py build/release/bin/bench_solve models

Milliseconds from rows to results, the shipped weights, medians, the two in turns: twice ours, twice theirs, the smaller of each.
The bars: at most 1.1 times eager PyTorch under fixed plans, at most half of torchdiffeq's time under error control. Needs
torch; without torchdiffeq its rows are left out. A third argument is the only model that is measured.
"""

import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import time

import torch
from torch import nn

from hyperserve.tensor_files import read_tensors

SECONDS = 0.5  # of one measurement
CASES = [(model, plan, rows) for model, plans in [("fashion", ["euler:2", "midpoint:2", "hyper_euler:2", "dopri5:1e-4"]),
                                                  ("pinwheel", ["heun:1", "hyper_heun:1", "rk4:2", "dopri5:1e-5"])]
         for plan in plans for rows in (1, 32, 256) if (plan, rows) != ("dopri5:1e-4", 256)]  # fmt: skip


class Augment(nn.Module):
    """Its layers' channels behind those of the input."""

    def __init__(self, layers):
        super().__init__()
        self.layers = layers

    def forward(self, x):
        return torch.cat([x, self.layers(x)], 1)


class MeanPool(nn.Module):
    def forward(self, x):
        return x.mean((2, 3))


def layer(kind, told):
    if kind == "conv2d":
        return nn.Conv2d(told["in"], told["out"], told["kernel"], padding=told.get("padding", 0))
    if kind == "linear":
        return nn.Linear(told["in"], told["out"])
    if kind == "augment":
        return Augment(net(told["layers"]))
    simple = {"softplus": lambda: nn.Softplus(), "prelu": lambda: nn.PReLU(told["slopes"]), "mean_pool": MeanPool,
              "batch_norm": lambda: nn.BatchNorm2d(told["channels"])}  # fmt: skip
    return simple[kind]()


def net(layers, tensors=None, prefix=""):
    made = nn.Sequential(*(layer(*next(iter(one.items()))) for one in layers))
    if tensors is not None:
        own = {name.removeprefix(prefix + "."): torch.from_numpy(value) for name, value in tensors.items()
               if name.startswith(prefix + ".")}  # fmt: skip
        made.load_state_dict(own, strict=False)
    return made.eval()


class Peer:
    """A shipped model in eager PyTorch."""

    def __init__(self, folder):
        spec = json.loads((folder / "model.json").read_text())
        tensors = read_tensors(folder / "weights.safetensors")
        self.images = spec["kind"] == "classifier"
        self.stem, self.field, self.head = (net(spec.get(part, []), tensors, part) for part in ("stem", "field", "head"))
        solvers = folder / "hypersolvers" / ("euler" if self.images else "heun")
        generation = solvers / (solvers / "ACTIVE").read_text().strip()
        told = json.loads((generation / "hypersolver.json").read_text())
        assert told["inputs"] == ["state", "slope_1", "step"]
        self.correction = net(told["net"], read_tensors(generation / "weights.safetensors"), "net")

    def rows(self, count):
        if self.images:
            return (torch.arange(count * 784).reshape(count, 1, 28, 28) * 37 % 256).to(torch.uint8)  # those of bench_solve
        return torch.randn(count, 2)

    def solve(self, plan, rows):
        """From noise pinwheel goes against its field."""
        sign = 1.0 if self.images else -1.0
        z = self.stem(rows.float() / 255) if self.images else torch.randn_like(rows)
        name, argument = plan.split(":")
        if name == "dopri5":
            from torchdiffeq import odeint

            tolerance = float(argument)
            z = odeint(lambda s, x: sign * self.field(x), z, torch.tensor([0.0, 1.0]), rtol=tolerance, atol=tolerance,
                       method="dopri5")[-1]  # fmt: skip
        else:
            z = self.fixed(name, int(argument), sign, z)
        return self.head(z) if self.images else z

    def fixed(self, name, steps, sign, z):
        eps, hypersolved = 1.0 / steps, name.startswith("hyper_")
        method = name.removeprefix("hyper_")

        def f(x): return sign * self.field(x)  # fmt: skip

        for _ in range(steps):
            a, start = f(z), z
            if method == "euler":
                z = z + eps * a
            elif method == "midpoint":
                z = z + eps * f(z + 0.5 * eps * a)
            elif method == "heun":
                z = z + 0.5 * eps * (a + f(z + eps * a))
            else:
                b = f(z + 0.5 * eps * a)
                c = f(z + 0.5 * eps * b)
                z = z + eps / 6 * (a + 2 * b + 2 * c + f(z + eps * c))
            if hypersolved:
                step = torch.full_like(start[:, :1], eps)
                z = z + eps ** (2 if method == "euler" else 3) * self.correction(torch.cat([start, a, step], 1))
        return z


def theirs(peer, plan, count):
    rows, times = peer.rows(count), []
    with torch.inference_mode():
        peer.solve(plan, rows)
        end = time.monotonic() + SECONDS
        while time.monotonic() < end or len(times) < 2:
            begun = time.monotonic()
            peer.solve(plan, rows)
            times.append((time.monotonic() - begun) * 1e3)
    return statistics.median(times)


def ours(program, models, model, plan, count):
    told = subprocess.run([*shlex.split(program), f"--benchmark_filter=^{model}/{plan}/rows:{count}/", "--benchmark_format=json",
                           "--benchmark_min_time=0.1", "--benchmark_repetitions=3"], check=True, capture_output=True, text=True,
                          env=os.environ | {"HYPERSERVE_MODELS": str(models), "HYPERSERVE_BENCH_DEVICE": "cpu"})  # fmt: skip
    runs = json.loads(told.stdout)["benchmarks"]
    return next(run["real_time"] for run in runs if run.get("aggregate_name") == "median")


def main(program, models, only=""):
    torch.set_num_threads(1)
    models = pathlib.Path(models).resolve()
    peers = {name: Peer(models / name) for name in ("fashion", "pinwheel")}
    print(f"one thread; torch {torch.__version__}")
    for model, plan, rows in CASES:
        if only not in ("", model):
            continue
        try:
            pairs = [(ours(program, models, model, plan, rows), theirs(peers[model], plan, rows)) for _ in range(2)]
        except ImportError:
            continue
        own, other = (min(times) for times in zip(*pairs))
        print(f"{model:9} {plan:14} {rows:4} rows  ours {own:9.3f}  {'torchdiffeq' if 'dopri5' in plan else 'eager':11} "
              f"{other:9.3f} ms  ratio {own / other:.2f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
