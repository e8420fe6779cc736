"""SIGINT and SIGTERM end the trainer within a second in every phase, and leave the repository as it was.

    stop_phases_test.py HYPERSERVE_TRAIN
"""

import gzip
import json
import os
import pathlib
import pty
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TRAIN = ""
LIMIT = 1.0  # seconds from the signal to the end
SLACK = 1.0  # a machine with other work on it starts and ends processes late
ENDLESS = 10**6


def recipe(name, **changes):
    """A recipe of the house with some fields replaced: {"calibrate.rows": 10}."""
    tree = json.loads((ROOT / f"training/recipes/{name}.json").read_text())
    for path, value in changes.items():
        *parents, last = path.split(".")
        place = tree
        for parent in parents:
            place = place[parent]
        place[last] = value
    return tree


def quick(**changes):
    """Changes that make each part short, but for the given ones."""
    return {"calibrate.rows": 32, "calibrate.plans": ["euler:1", "dopri5:1e-3"], "calibrate.tiers": ["exact"], **changes}


def quick_fit(**changes):
    return quick(**{"hypersolver.optimiser.iterations": 1, "hypersolver.truth_rows": 64, "hypersolver.check_rows": 64, **changes})


def tree_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def write_images(folder, part, count):
    images = struct.pack(">IIII", 0x803, count, 28, 28) + os.urandom(count * 784)
    labels = struct.pack(">II", 0x801, count) + bytes(i % 10 for i in range(count))
    (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(images, 1))
    (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))


# Command, recipe, what the progress says once the phase is under way (None: nothing; it lasts from the third second on).
PHASES = {
    "a flow by its likelihood": ("model", recipe("rings", **{"fit.optimiser.iterations": ENDLESS}), "iterations"),
    "a flow by matching": ("model", recipe("circles", **{"fit.optimiser.iterations": ENDLESS}), "iterations"),
    "a classifier": ("model", recipe("fashion", **{"fit.optimiser.iterations": ENDLESS, "data.idx.validation_rows": 256,
                                                   "calibrate.rows": 16}), "iterations"),
    "the reference of a calibration": (
        "model", recipe("rings", **{"fit.optimiser.iterations": 1, "calibrate.rows": ENDLESS}), "dopri5:1e-7/double"),
    "the plans of a calibration": (
        "calibrate", recipe("pinwheel", **{"calibrate.rows": 2000, "calibrate.reference": "dopri5:1e-3",
                                           "calibrate.plans": [f"rk4:{k}" for k in range(100, 300)]}), "calibration"),
    "the rivals of a calibration": (
        "calibrate", recipe("pinwheel", **quick(**{"calibrate.rows": 2000, "calibrate.reference": "dopri5:1e-3",
                                                   "calibrate.default_error": 1, "calibrate.plans": ["rk4:100"]})), "rivals"),
    "a correction": ("hypersolver", recipe("pinwheel", **quick_fit(**{"hypersolver.optimiser.iterations": ENDLESS})), "iterations"),
    "its true solutions": ("hypersolver", recipe("pinwheel", **quick_fit(**{"hypersolver.truth_rows": ENDLESS})), None),
    "its checks": ("hypersolver", recipe("pinwheel", **quick_fit(**{"hypersolver.check_rows": ENDLESS})), "rows"),
    "its calibration": ("hypersolver", recipe("pinwheel", **quick_fit(**{"calibrate.rows": ENDLESS})), "rows"),
    "a learned solver": (
        "hypersolver", recipe("pinwheel_learned", **quick_fit(**{"hypersolver.optimiser.iterations": ENDLESS})), "iterations"),
    "its true states": ("hypersolver", recipe("pinwheel_learned", **quick_fit(**{"hypersolver.truth_rows": ENDLESS})), None),
    "a report": ("report", recipe("pinwheel", **{"calibrate.rows": ENDLESS, "calibrate.batch": 8192}), "rows"),
    "a judgement": ("judge", recipe("pinwheel", **{"calibrate.rows": ENDLESS}), "rows"),
}


class Trainer:
    """The trainer on a terminal of its own, where progress is told five times a second. On a system that has no terminals
    to lend it is a pipe, where short phases say nothing: then a phase is what runs after three seconds."""

    def __init__(self, folder, command, tree):
        self.models = folder / "models"
        path = folder / "recipe.json"
        path.write_text(json.dumps(tree))
        words = [TRAIN, command, f"--recipe={path}", f"--models={self.models}", f"--data={folder}", "--device=cpu"]
        words += [f"--html={folder}/models/page.html"] if command == "report" else []
        self.tells = True
        try:
            self.terminal, other = pty.openpty()
        except OSError:
            self.terminal, other = os.pipe()
            self.tells = False
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=other)
        os.close(other)
        self.said = ""

    def read(self, seconds):
        if select.select([self.terminal], [], [], seconds)[0]:
            try:
                self.said += os.read(self.terminal, 65536).decode(errors="replace")
            except OSError:  # it has ended
                pass

    def wait_for(self, words):
        words = words if self.tells else None
        end = time.monotonic() + (60 if words else 3)
        while time.monotonic() < end and self.process.poll() is None and not (words and words in self.said):
            self.read(0.1)
        return self.process.poll() is None and (words is None or words in self.said)

    def stop(self, number):
        """The seconds from the signal to the end."""
        start = time.monotonic()
        self.process.send_signal(number)
        while self.process.poll() is None and time.monotonic() < start + 30:
            self.read(0.01)
        return time.monotonic() - start

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.terminal)


class StopTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        (self.folder / "models").mkdir()

    def ship(self):
        shutil.copytree(ROOT / "models/pinwheel", self.folder / "models/pinwheel")

    def test_every_phase(self):
        write_images(self.folder, "train", 512)
        write_images(self.folder, "t10k", 64)
        self.ship()
        before = tree_of(self.folder / "models")
        for i, (phase, (command, tree, words)) in enumerate(PHASES.items()):
            number = (signal.SIGINT, signal.SIGTERM)[i % 2]
            with self.subTest(phase):
                trainer = Trainer(self.folder, command, tree)
                self.addCleanup(trainer.close)
                self.assertTrue(trainer.wait_for(words), f"it was not in the phase: {trainer.said}")
                seconds = trainer.stop(number)
                self.assertEqual(trainer.process.returncode, 128 + number, trainer.said)
                self.assertLess(seconds, LIMIT + SLACK)
                self.assertIn("nothing was written", trainer.said)
                self.assertEqual(tree_of(self.folder / "models"), before)
                print(f"{phase}: {seconds:.2f} s", flush=True)

    def test_at_any_moment(self):
        """A whole run, stopped ever later: nothing of the generation is there, or all."""
        self.ship()
        before = tree_of(self.folder / "models")
        tree = recipe("pinwheel", **quick_fit(**{"hypersolver.optimiser.iterations": 60, "hypersolver.pretrain_iterations": 20,
                                                 "hypersolver.check_every": 20}))
        stopped, later = 0, 0.1
        while True:
            trainer = Trainer(self.folder, "hypersolver", tree)
            self.addCleanup(trainer.close)
            end = time.monotonic() + later
            while time.monotonic() < end and trainer.process.poll() is None:
                trainer.read(0.01)
            if trainer.process.poll() is not None:
                break
            self.assertLess(trainer.stop(signal.SIGTERM), LIMIT + SLACK)
            if trainer.process.returncode == 0:  # it was writing
                break
            # Before its first line the trainer has no handler yet.
            self.assertIn(trainer.process.returncode, (128 + signal.SIGTERM, -signal.SIGTERM), trainer.said)
            self.assertEqual(tree_of(self.folder / "models"), before)
            stopped, later = stopped + 1, later + 0.5
        self.assertGreater(stopped, 1)


if __name__ == "__main__":
    TRAIN = sys.argv.pop(1)
    unittest.main()
