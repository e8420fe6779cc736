"""When a daemon is ready, what it holds of the GPU then, and what its first calls take beside later ones.

    PYTHONPATH=build/release/python-package python3 bench/ready.py build/release/bin/hyperserve models [FLAG...]

Seconds from the start of the process to `/readyz` 200; MB of the device (nvidia-smi), the largest before that and at that
moment; then for each call the milliseconds of the first, of the second, and the median of ten more. The first call of a size
that no warm-up made is where laziness would show. On a CPU the memory is left out.
"""

import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import numpy as np

import hyperserve

# Model, plan, rows. Tier fast and error control of flows run fused, others by captured steps or one operation at a time.
CALLS = [("rings", "default", 1), ("rings", "default", 1024), ("rings", "rk4:4", 1), ("rings", "rk4:4", 1000),
         ("rings", "rk4:4", 20000), ("rings", "rk4:4/double", 3), ("rings", "dopri5:1e-5", 4096),
         ("rings", "hyper_heun:1/fast", 65536), ("two_moons", "default", 1), ("fashion", "default", 1),
         ("fashion", "default", 32), ("fashion", "default", 256), ("fashion", "rk4:4", 1), ("fashion", "rk4:4", 24),
         ("fashion", "rk4:4", 1024), ("fashion", "hyper_euler:2/fast", 1), ("fashion", "hyper_euler:2/fast", 1024),
         ("fashion", "dopri5:1e-4", 1), ("fashion", "dopri5:1e-4", 256)]  # fmt: skip


def memory_mb():
    """0 where there is no GPU."""
    query = ["nvidia-smi", f"--id={os.environ.get('CUDA_VISIBLE_DEVICES', '0')}", "--query-gpu=memory.used",
             "--format=csv,noheader,nounits"]  # fmt: skip
    if shutil.which(query[0]) is None:
        return 0
    return int(subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0])


class Watch(threading.Thread):
    """The largest memory that it saw, ten times a second."""

    def __init__(self):
        super().__init__(daemon=True)
        self.largest, self.ended = memory_mb(), False

    def run(self):
        while not self.ended:
            self.largest = max(self.largest, memory_mb())
            time.sleep(0.1)


def start(program, models, flags, folder):
    """The process, its ports, and the seconds until it was ready."""
    ports = pathlib.Path(folder) / "ports.json"
    addresses = [f"--{name}=127.0.0.1:0" for name in ("address", "admin_address", "http_address")]
    begun = time.monotonic()
    process = subprocess.Popen([program, f"--models={models}", f"--ports_file={ports}", *addresses, *flags])
    while not ports.exists():
        if process.poll() is not None:
            sys.exit("the daemon ended")
        time.sleep(0.01)
    seconds = time.monotonic() - begun
    addresses = json.loads(ports.read_text())
    with urllib.request.urlopen(f"http://{addresses['http_address']}/readyz", timeout=10) as reply:
        assert reply.status == 200
    return process, addresses, seconds


def milliseconds(call):
    begun = time.monotonic()
    engine = call().info.engine
    return (time.monotonic() - begun) * 1e3, engine


def measure_calls(client, served):
    for model, plan, rows in CALLS:
        if model not in served:
            continue
        images = (np.arange(rows * 784).reshape(rows, 1, 28, 28) * 37 % 256).astype(np.uint8)
        if model == "two_moons":
            def call(): return client.sample(model, rows, plan=plan, condition=np.zeros((1, 2), np.float32))  # fmt: skip
        elif model == "fashion":
            def call(): return client.classify(model, images, plan=plan)  # fmt: skip
        else:
            def call(): return client.sample(model, rows, plan=plan)  # fmt: skip
        try:
            first, engine = milliseconds(call)
            second, _ = milliseconds(call)
            later = statistics.median(milliseconds(call)[0] for _ in range(10))
        except hyperserve.HyperserveError as error:
            print(f"{model:10} {plan:20} {rows:6}: {error}")
            continue
        print(f"{model:10} {plan:20} {rows:6} rows {engine:9} first {first:8.2f} second {second:8.2f} later {later:8.2f} ms")


def main(program, models, *flags):
    before = memory_mb()
    watch = Watch()
    watch.start()
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copytree(models, pathlib.Path(folder) / "models")
        served = [one.name for one in copy.iterdir() if (one / "model.json").exists()]
        process, addresses, seconds = start(program, copy, flags, folder)
        ready = memory_mb()
        print(f"ready after {seconds:.2f} s with {len(served)} models; {ready - before} MB of the device, "
              f"at most {watch.largest - before} MB before", flush=True)  # fmt: skip
        with hyperserve.Client(addresses["address"], timeout=60) as client:
            measure_calls(client, served)
        print(f"after these calls {memory_mb() - before} MB of the device")
        watch.ended = True
        process.terminate()
        print(f"ended with {process.wait()}")


if __name__ == "__main__":
    main(*sys.argv[1:])
