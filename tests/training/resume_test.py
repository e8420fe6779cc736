"""A run that is killed again and again, and gone on with by --resume, ends with the bytes and the course of a run that was
never killed, and leaves nothing but its results.

    resume_test.py HYPERSERVE_TRAIN
"""

import copy
import gzip
import json
import os
import pathlib
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

TRAIN = ""
KILLS = 4  # of each run at most

FLOW = {
    "format": 1, "name": "small", "seed": 4, "data": {"density": "gaussians"},
    "model": {"format": 1, "kind": "flow", "span": [0, 1], "direction": "data_to_noise", "input": {"shape": [2]},
              "field": [{"depth_cat": {}}, {"linear": {"in": 3, "out": 16}}, {"tanh": {}}, {"linear": {"in": 16, "out": 2}}]},
    "fit": {"optimiser": {"iterations": 900, "batch": 64, "rate": 0.02, "final_rate": 0.001}, "solver": "midpoint:3"},
    "hypersolver": {
        "net": {"method": "heun", "direction": "noise_to_data", "steps": [1, 2], "inputs": ["state", "slope_1", "step"],
                "net": [{"linear": {"in": 5, "out": 32}}, {"prelu": {"slopes": 1}}, {"linear": {"in": 32, "out": 2}}]},
        "optimiser": {"iterations": 2000, "batch": 128, "rate": 0.01}, "steps": [1, 1, 2], "truth": "dopri5:1e-6",
        "truth_rows": 256, "pretrain_iterations": 300, "swap_every": 70, "trajectory_share": 0.25, "check_every": 50,
        "check_rows": 128, "probe_rows": 16},
    "calibrate": {"plans": ["heun:1"], "reference": "dopri5:1e-7", "rows": 256, "batch": 128},
}
LEARNED = copy.deepcopy(FLOW)
LEARNED["hypersolver"] = {
    "solver": {"learned": {"direction": "noise_to_data", "evaluations": [1, 2], "coefficients": "channel",
                           "net": {"hidden": [8]}}},
    "optimiser": {"iterations": 900, "batch": 128, "rate": 0.01, "clip_norm": 1}, "truth": "dopri5:1e-6", "truth_rows": 512,
    "check_every": 25, "check_rows": 256, "probe_rows": 16}
MATCHING = copy.deepcopy(FLOW)
MATCHING["fit"] = {"optimiser": {"iterations": 2500, "batch": 64, "rate": 0.02, "final_rate": 0.001},
                   "flow_matching": {"pairing_rounds": 5}, "check_every": 100, "check_rows": 256}
CLASSIFIER = {
    "format": 1, "name": "small", "seed": 4, "data": {"idx": {"validation_rows": 256}},
    "model": {"format": 1, "kind": "classifier", "span": [0, 1], "input": {"shape": [1, 8, 8], "unit_range": True},
              "stem": [{"batch_norm": {"channels": 1}}, {"augment": {"layers": [{"conv2d": {"in": 1, "out": 2, "kernel": 3, "padding": 1}}]}}],
              "field": [{"conv2d": {"in": 3, "out": 3, "kernel": 3, "padding": 1}}, {"tanh": {}}],
              "head": [{"flatten": {}}, {"linear": {"in": 192, "out": 10}}]},
    "fit": {"optimiser": {"iterations": 500, "batch": 32, "rate": 0.02, "final_rate": 0.001}, "solver": "midpoint:2",
            "check_every": 100, "check_rows": 200},
    "calibrate": {"plans": ["heun:1"], "reference": "dopri5:1e-5", "rows": 100, "batch": 50},
}


def write_images(folder, part, count):
    pixels = random.Random(count)
    images = struct.pack(">IIII", 0x803, count, 8, 8) + pixels.randbytes(count * 64)
    labels = struct.pack(">II", 0x801, count) + bytes(pixels.randrange(10) for _ in range(count))
    (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(images, 1))
    (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))


def results(models):
    """Paths and bytes of what a run wrote, but for the files that hold measured times."""
    measured = ("calibration.json", "MANIFEST.json")
    return {str(path.relative_to(models)): "" if path.name in measured else path.read_bytes()
            for path in sorted(models.rglob("*")) if path.is_file() and ".training" not in path.parts}


class Case:
    def __init__(self, folder, command, recipe, base=None, data=None):
        self.folder, self.command, self.data = folder, command, data or folder.parent
        self.recipe = folder / "recipe.json"
        self.recipe.write_text(json.dumps(recipe))
        self.models, self.curve = folder / "models", folder / "curve.csv"
        self.models.mkdir()
        if base:
            shutil.copytree(base / "models/small", self.models / "small")

    def words(self, *more, every="0.02"):
        return [TRAIN, self.command, f"--recipe={self.recipe}", f"--models={self.models}", f"--data={self.data}",
                "--device=cpu", f"--checkpoint_every={every}", f"--curve={self.curve}", *more]

    def run(self, *more, **options):
        return subprocess.run(self.words(*more, **options), capture_output=True, text=True)

    def killed(self, number, seconds, *more):
        """Starts it and sends the signal after some seconds; whether it had ended well before, and what it said."""
        process = subprocess.Popen(self.words(*more), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(number)
        said = process.communicate()[1]
        return process.returncode == 0, said

    def checkpoints(self):
        return list(self.models.rglob(".training/*/*.safetensors"))

    def outcome(self):
        return results(self.models), self.curve.read_text()


class ResumeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        write_images(cls.folder, "train", 700)
        write_images(cls.folder, "t10k", 100)
        (cls.folder / "base").mkdir()
        cls.base = cls.folder / "base"
        made = Case(cls.base, "model", FLOW).run()
        assert made.returncode == 0, made.stderr

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def case(self, name, *arguments):
        (self.folder / name).mkdir()
        self.addCleanup(shutil.rmtree, self.folder / name)
        return Case(self.folder / name, *arguments)

    def test_a_checkpoint_that_cannot_be_written_is_not_promised(self):
        recipe = copy.deepcopy(FLOW)
        recipe["fit"]["optimiser"]["iterations"] = 10**6
        case = self.case("unwritten", "model", recipe)
        (case.models / ".training").write_text("a file where the folder would be")
        done, said = case.killed(signal.SIGTERM, 6)
        self.assertFalse(done)
        self.assertIn("could not be written", said)
        self.assertNotIn("goes on from iteration", said)

    def test_killed_runs_end_as_whole_ones(self):
        cases = {"likelihood": ("model", FLOW), "matching": ("model", MATCHING), "classifier": ("model", CLASSIFIER),
                 "correction": ("hypersolver", FLOW, self.base), "learned": ("hypersolver", LEARNED, self.base)}
        chance = random.Random(1)
        for name, arguments in cases.items():
            with self.subTest(name):
                whole = self.case(f"{name}-whole", *arguments)
                start = time.monotonic()
                done = whole.run(every="0")
                self.assertEqual(done.returncode, 0, done.stderr)
                length = time.monotonic() - start
                other = self.case(f"{name}-killed", *arguments)
                went_on, kills, ended, before = [], 0, False, results(other.models).keys()
                while not ended:
                    last = kills == KILLS
                    number = (signal.SIGKILL, signal.SIGTERM)[kills % 2]
                    ended, said = other.killed(number, 300 if last else chance.uniform(0.3, 0.7) * length, "--resume")
                    self.assertFalse(last and not ended, said)
                    kills += not ended
                    # A kill between the last write and the end is late: the results are there.
                    ended = ended or any(results(other.models).keys() - before)
                    went_on += re.findall(r"goes on from iteration (\d+)", said)
                self.assertGreater(kills, 0)
                self.assertTrue(went_on, "no checkpoint was gone on from")
                self.assertEqual(other.outcome(), whole.outcome())
                print(f"{name}: {kills} kills, went on from iterations {', '.join(went_on)}", flush=True)

    def test_sigkill_at_any_moment(self):
        """Ever later kills of one run: after each the results are not there or whole, and in the end nothing else is there."""
        case = self.case("moments", "model", FLOW)
        model = case.models / "small"
        later = 0.05
        while not case.killed(signal.SIGKILL, later, "--resume", "--replace")[0]:
            if (model / "model.json").exists():
                self.assertEqual({path.name for path in model.iterdir()} - {"calibration.json"},
                                 {"model.json", "weights.safetensors"})
            later += 0.15
        self.assertEqual(sorted(results(case.models)),
                         ["small/calibration.json", "small/model.json", "small/weights.safetensors"])
        self.assertEqual(results(case.models)["small/weights.safetensors"],
                         (self.base / "models/small/weights.safetensors").read_bytes())

    def begun(self, *arguments, more=()):
        """A run that was killed after its first checkpoint."""
        case = self.case(*arguments)
        process = subprocess.Popen(case.words(*more), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 60
        while not case.checkpoints() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        process.kill()
        process.wait()
        self.assertTrue(case.checkpoints(), "it ended before it was killed")
        return case

    def test_another_recipe_is_refused(self):
        case = self.begun("other", "model", FLOW)
        done = case.run("--resume", "--iterations=901")
        self.assertEqual(done.returncode, 1)
        self.assertIn("is of another recipe than this run", done.stderr)
        self.assertTrue(case.checkpoints(), "a refusal removes nothing")
        done = case.run("--iterations=50")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("--resume goes on from them, and this run, which begins anew, will replace them", done.stderr)
        self.assertEqual(case.checkpoints(), [])

    def assert_refused(self, case, what):
        done = case.run("--resume")
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"is of another {what} than this run", done.stderr)

    def test_other_data_are_refused(self):
        rows = random.Random(2)
        data = self.folder / "points.csv"
        self.addCleanup(os.remove, data)
        recipe = copy.deepcopy(FLOW)
        recipe["data"] = {"points": {"validation_rows": 256, "held_out_rows": 256}}

        def write():
            data.write_text("".join(f"{rows.gauss(0, 1)},{rows.gauss(1, 2)}\n" for _ in range(2000)))

        write()
        case = self.begun("points", "model", recipe, None, data)
        write()
        self.assert_refused(case, "data")

    def test_another_base_is_refused(self):
        case = self.begun("rebased", "hypersolver", FLOW, self.base)
        shutil.rmtree(case.models / "small")
        other = self.case("rebase", "model", FLOW)
        self.assertEqual(other.run("--iterations=50").returncode, 0)
        shutil.copytree(other.models / "small", case.models / "small")
        self.assert_refused(case, "base")

    def test_another_start_is_refused(self):
        first = self.case("first", "hypersolver", LEARNED, self.base)
        self.assertEqual(first.run().returncode, 0)
        start = first.models / "small/hypersolvers/learned/1"
        self.assert_refused(self.begun("second", "hypersolver", LEARNED, self.base, more=[f"--from={start}"]), "start")

    def test_stop_tells_how_to_go_on(self):
        case = self.case("stop", "model", MATCHING)
        for seconds in (1.0, 1.5, 2.0, 3.0):
            ended, said = case.killed(signal.SIGTERM, seconds)
            if ended or "--resume" in said:
                break
        self.assertIn("nothing was written but a checkpoint: --resume goes on from iteration", said)
        self.assertEqual(results(case.models), {})


if __name__ == "__main__":
    TRAIN = sys.argv.pop(1)
    unittest.main()
