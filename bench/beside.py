"""What calls to a daemon take alone, and beside a trainer on the same GPU.

    PYTHONPATH=build/release/python-package python3 bench/beside.py build/release/bin models [CALLS]

BIN holds hyperserve and hyperserve-train, MODELS fashion and rings. One client calls in a closed loop, CALLS (3,000) times of
each kind, a third as many of many rows: median, 99th percentile, and that over the one alone in the same way, where 1.5 is
the bar. The trainer refreshes fashion's learned:4 on random images. Ways: two plain processes; the trainer with
CUDA_LAUNCH_BLOCKING=1; both under MPS, whose control daemon is started here, as one of this user, and ended again; under MPS
with the trainer on less than half of the multiprocessors. Lines tell how many iterations a second the fit made meanwhile.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np
import ready

import hyperserve

CALLS = [("fashion", "default", 1), ("fashion", "default", 32), ("rings", "default", 1)]
FITS_WITHIN = 60  # seconds from the trainer's start to its first iterations
RECIPE = {
    "format": 1, "name": "fashion", "seed": 3, "data": {"points": {"validation_rows": 500, "held_out_rows": 500}},
    "hypersolver": {
        "solver": {"learned": {"direction": "forward", "evaluations": [4], "coefficients": "map", "maps_up_to": 6,
                               "nets": [{"hidden": [56, 56, 56]}]}},
        "optimiser": {"iterations": 20000, "batch": 128, "rate": 0.002, "final_rate": 1e-5, "warm_up": 100, "weight_decay": 0,
                      "clip_norm": 1},
        "truth": "dopri5:1e-5", "truth_rows": 1024, "check_every": 50, "check_rows": 256, "probe_rows": 64},
    "calibrate": {"plans": ["euler:1"], "reference": "dopri5:1e-6", "rows": 500, "batch": 256, "default_error": 0.01,
                  "default_agreement": 0.995}}  # fmt: skip


def measure(client, way, calls, alone):
    """Prints a line for each kind of call; p99 by kind."""
    found = {}
    for model, plan, rows in CALLS:
        images = (np.arange(rows * 784).reshape(rows, 1, 28, 28) * 37 % 256).astype(np.uint8)
        if model == "fashion":
            def call(): return client.classify(model, images, plan=plan)  # fmt: skip
        else:
            def call(): return client.sample(model, rows, plan=plan)  # fmt: skip
        call()
        times = []
        for _ in range(calls if rows == 1 else calls // 3):
            begun = time.monotonic()
            engine = call().info.engine
            times.append((time.monotonic() - begun) * 1e3)
        p50, p99 = np.percentile(times, [50, 99])
        found[model, rows] = p99
        ratio = f"  {p99 / alone[model, rows]:5.2f} times p99 alone" if alone else ""
        print(f"{way:24} {model:8} {plan:8} {rows:3} rows {engine:6} {len(times):5} calls  p50 {p50:7.3f}  p99 {p99:7.3f} ms{ratio}",
              flush=True)  # fmt: skip
    return found


class Trainer:
    """Fits until `stop`."""

    def __init__(self, program, models, folder, extra):
        self._log = folder / "trainer.log"
        copy = shutil.copytree(models, folder / "models", dirs_exist_ok=True)
        flags = [f"--recipe={folder / 'recipe.json'}", f"--models={copy}", f"--data={folder / 'x.npy'}", "--device=cuda"]
        (folder / "recipe.json").write_text(json.dumps(RECIPE))
        np.save(folder / "x.npy", np.random.default_rng(1).integers(0, 256, (3500, 1, 28, 28), np.uint8))
        with self._log.open("w") as log:
            self._process = subprocess.Popen([program, "hypersolver", *flags], env=os.environ | extra, stdout=log, stderr=log)
        self._seen = []  # when it told how many iterations it had made
        threading.Thread(target=self._watch, daemon=True).start()
        end = time.monotonic() + FITS_WITHIN
        while not self._seen:
            if self._process.poll() is not None or time.monotonic() > end:
                self.stop()
                raise RuntimeError("the trainer does not fit:\n" + self._log.read_text()[-2000:])
            time.sleep(0.1)

    def _watch(self):
        while self._process.poll() is None:
            told = re.findall(r"(\d+)/\d+ iterations", self._log.read_text())
            if len(told) > len(self._seen):
                self._seen.append((time.monotonic(), int(told[-1])))
            time.sleep(0.05)

    def rate(self):
        """Iterations a second, between the first line and the last; 0 before there are two."""
        (begun, first), (end, last) = self._seen[0], self._seen[-1]
        return (last - first) / max(end - begun, 1e-9)

    def stop(self):
        """Its last line."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        return self._log.read_text().replace("\r", "\n").strip().split("\n")[-1]


def beside(programs, models, client, way, calls, alone, extra):
    with tempfile.TemporaryDirectory() as folder:
        try:
            trainer = Trainer(programs / "hyperserve-train", models, pathlib.Path(folder), extra)
        except RuntimeError as error:
            print(f"{way}: {error}", flush=True)
            return
        measure(client, way, calls, alone)
        print(f"{way:24} {trainer.rate():.0f} iterations a second; {ready.memory_mb()} MB of the device; {trainer.stop()}", flush=True)


def serve(programs, models, calls, ways):
    """Measures alone, in each of the ways, and alone again. ways: name and variables of the trainer by way."""
    with tempfile.TemporaryDirectory() as folder:
        process, addresses, _ = ready.start(programs / "hyperserve", models, ["--device=cuda", "--log_level=error"], folder)
        try:
            with hyperserve.Client(addresses["address"], timeout=60) as client:
                (first, extra), *others = ways
                alone = measure(client, f"{first}, alone", calls, None)
                for way, variables in [(first, extra), *others]:
                    beside(programs, models, client, way, calls, alone, variables)
                measure(client, f"{first}, alone again", calls, alone)
        finally:
            process.terminate()
            process.wait()


@contextlib.contextmanager
def mps():
    """The multi-process service, for the processes that are started within; False where it does not start."""
    control = shutil.which("nvidia-cuda-mps-control", path=os.environ["PATH"] + ":/usr/local/nvidia/bin:/usr/bin")
    if control is None:
        print("no nvidia-cuda-mps-control on this machine")
        yield False
        return
    with tempfile.TemporaryDirectory() as folder:
        names = {"CUDA_MPS_PIPE_DIRECTORY": f"{folder}/pipe", "CUDA_MPS_LOG_DIRECTORY": f"{folder}/log"}
        for name, path in names.items():
            os.mkdir(path)
            os.environ[name] = path
        started = subprocess.run([control, "-d"], capture_output=True, text=True)
        print("MPS:", started.returncode, started.stdout, started.stderr, flush=True)
        try:
            yield started.returncode == 0
        finally:
            if started.returncode == 0:
                subprocess.run([control], input="quit -t 5\n", text=True, timeout=60)
            for log in sorted(pathlib.Path(folder, "log").glob("*")):
                print(log.name, log.read_text(errors="replace")[-1500:], sep="\n", flush=True)
            for name in names:
                del os.environ[name]


def main(programs, models, calls="3000"):
    programs = pathlib.Path(programs).resolve()
    with tempfile.TemporaryDirectory() as folder:
        for model in ("fashion", "rings"):
            shutil.copytree(pathlib.Path(models) / model, pathlib.Path(folder) / model)
        serve(programs, folder, int(calls), [("plain", {}), ("launch blocking", {"CUDA_LAUNCH_BLOCKING": "1"})])
        with mps() as runs:
            if runs:
                serve(programs, folder, int(calls),
                      [("MPS", {}), ("MPS, trainer 40 %", {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "40"})])  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
