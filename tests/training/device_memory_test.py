"""The trainer's bound on the memory of a GPU. Without a GPU only what is refused is tested.

    device_memory_test.py HYPERSERVE_TRAIN
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from stop_phases_test import quick, recipe  # noqa: E402  (the path first)

TRAIN = ""
# Activations of one layer, 128 numbers of 4 bytes a row, take 100 MB.
ROWS = 200_000


class DeviceMemoryTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def train(self, *options):
        path = self.folder / "recipe.json"
        tree = recipe("rings", **quick(**{"fit.optimiser.iterations": 3, "fit.optimiser.batch": ROWS,
                                          "fit.flow_matching.pairing_rounds": 1}))
        path.write_text(json.dumps(tree))
        words = [TRAIN, "model", f"--recipe={path}", f"--models={self.folder}/models", *options]
        return subprocess.run(words, capture_output=True, text=True)

    def assert_nothing_was_written(self):
        self.assertFalse((self.folder / "models/rings").exists())

    def test_it_is_refused_where_there_is_no_gpu_memory_to_bound(self):
        done = self.train("--device=cpu", "--device_memory_max=1e9")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("--device_memory_max=1e+09 bounds the memory of a GPU, and this runs on the CPU: leave it out", done.stderr)
        self.assert_nothing_was_written()

    def test_it_must_be_a_number_of_bytes(self):
        for wrong in ("-1", "nan"):
            done = self.train("--device=cpu", f"--device_memory_max={wrong}")
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("is not 0, for no bound, or more bytes", done.stderr)
        self.assert_nothing_was_written()

    def test_on_a_gpu_a_fit_stays_within_it_or_says_what_would_help(self):
        done = self.train("--device=cuda", "--device_memory_max=3e8")
        self.assertNotEqual(done.returncode, 0)
        if "there is no device" in done.stderr:
            self.skipTest(done.stderr.strip())
        self.assertIn("the memory of the device is full; allow more than --device_memory_max=3e+08 bytes, or give the recipe "
                      "smaller batches", done.stderr)
        self.assertEqual(done.stderr.count("\n\n"), 0, "LibTorch's own words are many lines")
        self.assert_nothing_was_written()
        done = self.train("--device=cuda", "--device_memory_max=8e9")
        self.assertEqual(done.returncode, 0, done.stderr)
        most = int(re.search(r"at most (\d+) MiB", done.stdout).group(1))
        self.assertGreater(most * 2**20, 3e8)
        self.assertLess(most * 2**20, 8e9)


if __name__ == "__main__":
    TRAIN = sys.argv.pop(1)
    unittest.main()
