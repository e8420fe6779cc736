"""Data of one's own, as a user gives them to the trainer: each format is taken, and what cannot be taken is said before
training starts.

    own_data_test.py HYPERSERVE_TRAIN
"""

import gzip
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import unittest

TRAIN = ""
ROWS = 1500


def npy(rows):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({len(rows)}, {len(rows[0])}), }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    numbers = [number for row in rows for number in row]
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + struct.pack(f"<{len(numbers)}f", *numbers)


def safetensors(**tensors):
    """name=(dtype, shape, bytes)"""
    header, data = {}, b""
    for name, (dtype, shape, values) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def floats(rows):
    return ("F32", [len(rows), len(rows[0])], struct.pack(f"<{len(rows) * len(rows[0])}f", *[n for row in rows for n in row]))


def csv(rows, header=""):
    return (header + "".join(",".join(f"{n:.6g}" for n in row) + "\n" for row in rows)).encode()


def points(dimensions, rows=ROWS):
    chance = random.Random(dimensions)
    return [[chance.gauss(0.3 * d % 1, 1) for d in range(dimensions)] for _ in range(rows)]


def flow(dimensions, **data):
    width = min(2 * dimensions, 64)
    return {"format": 1, "name": "mine", "seed": 1,
            "data": data or {"points": {"validation_rows": 256, "held_out_rows": 200}},
            "model": {"format": 1, "kind": "flow", "span": [0, 1], "direction": "noise_to_data", "input": {"shape": [dimensions]},
                      "field": [{"depth_cat": {}}, {"linear": {"in": dimensions + 1, "out": width}}, {"tanh": {}},
                                {"linear": {"in": width, "out": dimensions}}]},
            "fit": {"optimiser": {"iterations": 30, "batch": 64, "rate": 0.01}, "flow_matching": {}},
            "hypersolver": {"solver": {"learned": {"direction": "noise_to_data", "evaluations": [1, 2], "coefficients": "channel"}},
                            "optimiser": {"iterations": 30, "batch": 64, "rate": 0.01}, "truth": "dopri5:1e-5", "truth_rows": 128,
                            "check_every": 10, "check_rows": 100, "probe_rows": 16},
            "calibrate": {"plans": ["euler:1"], "reference": "dopri5:1e-6", "rows": 100, "batch": 50}}


def classifier():
    return {"format": 1, "name": "mine", "seed": 1, "data": {"points": {"validation_rows": 256, "held_out_rows": 200}},
            "model": {"format": 1, "kind": "classifier", "span": [0, 1], "input": {"shape": [4]}, "stem": [],
                      "field": [{"linear": {"in": 4, "out": 4}}, {"tanh": {}}], "head": [{"linear": {"in": 4, "out": 3}}]},
            "fit": {"optimiser": {"iterations": 200, "batch": 64, "rate": 0.05}, "solver": "midpoint:2"},
            "hypersolver": {"solver": {"learned": {"direction": "forward", "evaluations": [1], "coefficients": "channel"}},
                            "optimiser": {"iterations": 30, "batch": 64, "rate": 0.01}, "truth": "dopri5:1e-5", "truth_rows": 128,
                            "check_every": 10, "check_rows": 100, "probe_rows": 16},
            "calibrate": {"plans": ["euler:1"], "reference": "dopri5:1e-6", "rows": 100, "batch": 50}}


class OwnDataTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def train(self, command, recipe, data, given=None, models="models"):
        path = self.folder / "recipe.json"
        path.write_text(json.dumps(recipe))
        return subprocess.run([TRAIN, command, f"--recipe={path}", f"--models={self.folder / models}", f"--data={data}", "--device=cpu"],
                              input=given, capture_output=True)

    def write(self, name, content):
        (self.folder / name).write_bytes(content)
        return self.folder / name

    def test_every_format_gives_the_same_flow(self):
        rows = points(3)
        files = {"rows.npy": npy(rows), "rows.npy.gz": gzip.compress(npy(rows)), "rows.safetensors": safetensors(x=floats(rows))}
        weights = set()
        for name, content in files.items():
            done = self.train("model", flow(3), self.write(name, content), models=name + "-models")
            self.assertEqual(done.returncode, 0, done.stderr.decode())
            weights.add((self.folder / f"{name}-models/mine/weights.safetensors").read_bytes())
        done = self.train("model", flow(3), "-", given=npy(rows), models="input-models")
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        weights.add((self.folder / "input-models/mine/weights.safetensors").read_bytes())
        self.assertEqual(len(weights), 1)
        done = self.train("model", flow(3), self.write("rows.csv", csv(rows, "a,b,c\n")), models="csv-models")
        self.assertEqual(done.returncode, 0, done.stderr.decode())

    def test_a_flow_of_64_dimensions_and_its_solver(self):
        data = self.write("rows.npy", npy(points(64)))
        done = self.train("model", flow(64), data)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        done = self.train("hypersolver", flow(64), data)
        self.assertTrue(done.returncode == 0 or b"does not win" in done.stderr, done.stderr.decode())

    def test_a_classifier_of_rows_and_labels(self):
        rows = points(4)
        labels = bytes(max(range(3), key=row.__getitem__) for row in rows)
        labelled = self.write("both.safetensors", safetensors(x=floats(rows), y=("U8", [ROWS], labels)))
        done = self.train("model", classifier(), labelled)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        accuracy = float(done.stdout.decode().split("accuracy ")[1].split()[0])
        self.assertGreater(accuracy, 0.8)
        done = self.train("judge", classifier(), labelled)
        self.assertIn(f"accuracy {accuracy:.4f}", done.stdout.decode())
        unlabelled = self.write("rows.npy", npy(rows))
        done = self.train("hypersolver", classifier(), unlabelled)
        self.assertTrue(done.returncode == 0 or b"does not win" in done.stderr, done.stderr.decode())
        done = self.train("model", classifier(), unlabelled, models="others")
        self.assertIn("a safetensors file with the tensors x and y is wanted", done.stderr.decode())

    def test_refusals_come_before_training(self):
        three = self.write("three.npy", npy(points(3)))
        few = self.write("few.npy", npy(points(2, 300)))
        pickle = self.write("points.pt", b"PK\x03\x04" + b"archive/data.pkl" * 8)
        words = self.write("words.csv", b"one,two\nthree,four\n")
        gap = self.write("gap.csv", csv(points(2)) + b"nan,1\n")
        other = self.write("other.safetensors", safetensors(a=floats(points(2)), b=floats(points(2))))
        cases = [(flow(2), three, "a row has shape [3], the model takes [2]"), (flow(2), few, "leave nothing to fit on"),
                 (flow(2), self.folder / "none.npy", "none.npy"), (flow(2), pickle, "points.pt"), (flow(2), words, "words.csv"),
                 (flow(2), gap, "finite numbers are wanted"), (flow(2), other, "there are a, b"),
                 (flow(2, density="circle"), "", "checkerboard, circles, gaussians, moons, pinwheel, rings"),
                 (flow(3, density="circles"), "", "the model takes [3]; data.points takes rows of any shape"),
                 (flow(2, idx={"validation_rows": 256}), "", "a flow takes data.density, data.points or data.states"),
                 ({**flow(2), "dta": {}}, three, "dta")]
        for recipe, data, said in cases:
            with self.subTest(said):
                recipe.get("fit", {}).get("optimiser", {})["iterations"] = 10**6
                done = self.train("model", recipe, data)
                self.assertEqual(done.returncode, 1, done.stderr.decode())
                self.assertIn(said, done.stderr.decode())
                self.assertFalse((self.folder / "models").exists())


if __name__ == "__main__":
    TRAIN = sys.argv.pop(1)
    unittest.main()
