"""The trainer's progress tells one time left, that until its end, or says that it is that of a part.

    whole_time_test.py HYPERSERVE_TRAIN
"""

import json
import os
import pathlib
import pty
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from stop_phases_test import ROOT, recipe  # noqa: E402  (the path first)

TRAIN = ""
# Told within a factor of two where the machine's pace is even; beside other tests it is not.
FACTOR = 3.0
SLACK = 1.5  # seconds: figures are rounded, processes end late
LEFT = re.compile(r"([^\r\n\x1b]*?)  (?:(\d+) min )?(\d+) s left( of this part)?")


class Course:
    """All that a run told: (seconds before its end, line, seconds left, of a part)."""

    def __init__(self, folder, command, tree, *options):
        path = folder / "recipe.json"
        path.write_text(json.dumps(tree))
        terminal, other = pty.openpty()
        words = [TRAIN, command, f"--recipe={path}", f"--models={folder}/models", "--device=cpu", *options]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=other)
        os.close(other)
        said, told = "", []
        while True:
            try:
                data = os.read(terminal, 65536)
            except OSError:  # it has ended
                break
            said += data.decode(errors="replace")
            for line, minutes, seconds, part in LEFT.findall(data.decode(errors="replace")):
                told.append((time.monotonic(), line, 60 * int(minutes or 0) + int(seconds), bool(part)))
        process.communicate()
        self.code, self.said = process.returncode, said
        end = time.monotonic()
        os.close(terminal)
        self.told = [(end - at, line, seconds, part) for at, line, seconds, part in told]

    def of(self, words):
        return [one for one in self.told if words in one[1]]


class WholeTimeTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        shutil.copytree(ROOT / "models/pinwheel", self.folder / "models/pinwheel")
        try:
            for end in pty.openpty():
                os.close(end)
        except OSError as error:  # a pipe tells a line every ten seconds only
            self.skipTest(f"this system has no terminals to lend: {error}")

    def assert_holds(self, course, words):
        """Most lines with these words tell the time until the end of the command."""
        whole = [(actual, told) for actual, _, told, part in course.of(words) if not part]
        self.assertTrue(whole, f"no time of the whole with {words!r}: {course.said}")
        ratios = [(told + SLACK) / (actual + SLACK) for actual, told in whole]
        middle = statistics.median(ratios)
        print(f"{words}: {len(whole)} lines, told / actual {min(ratios):.2f} to {max(ratios):.2f}, median {middle:.2f}", flush=True)
        self.assertLess(middle, FACTOR, whole)
        self.assertGreater(middle, 1 / FACTOR, whole)

    def test_a_correction(self):
        course = Course(self.folder, "hypersolver", recipe("pinwheel", **{
            "hypersolver.optimiser.iterations": 100, "hypersolver.pretrain_iterations": 60, "hypersolver.check_every": 50,
            "hypersolver.truth_rows": 256, "hypersolver.check_rows": 128, "calibrate.rows": 600, "calibrate.batch": 512}))
        self.assertEqual(course.code, 0, course.said)
        self.assertTrue(all(part for _, _, _, part in course.of("dopri5:1e-7/double")), "the fit's time is not known yet")
        for words in ("iterations", "candidates", "rivals"):
            self.assert_holds(course, words)

    def test_a_learned_solver(self):
        course = Course(self.folder, "hypersolver", recipe("pinwheel_learned", **{
            "hypersolver.optimiser.iterations": 60, "hypersolver.truth_rows": 256, "hypersolver.check_rows": 128, "calibrate.rows": 600, "calibrate.tiers": ["exact"]}), "--evaluations=2,3")
        self.assertEqual(course.code, 0, course.said)
        self.assert_holds(course, "iterations")
        if course.of("tables:"):  # a fast machine measures them before the line is written again
            self.assert_holds(course, "tables:")

    def test_a_calibration(self):
        course = Course(self.folder, "calibrate", recipe("pinwheel", **{
            "calibrate.rows": 256, "calibrate.batch": 128, "calibrate.reference": "dopri5:1e-5", "calibrate.tiers": ["exact"]}))
        self.assertEqual(course.code, 0, course.said)
        self.assert_holds(course, "calibration")

    def test_a_model(self):
        course = Course(self.folder, "model", recipe("rings", **{
            "fit.optimiser.iterations": 100, "calibrate.rows": 600, "calibrate.tiers": ["exact"]}))
        self.assertEqual(course.code, 0, course.said)
        told = [(actual, seconds) for actual, _, seconds, part in course.of("iterations") if not part]
        for actual, seconds in told:  # known only where the fit is most of it
            self.assertLess((seconds + SLACK) / (actual + SLACK), 2 * FACTOR)
            self.assertGreater((seconds + SLACK) / (actual + SLACK), 1 / (2 * FACTOR))
        self.assertTrue(course.of("iterations"))
        self.assert_holds(course, "rivals" if course.of("rivals") else "calibration")


if __name__ == "__main__":
    TRAIN = sys.argv.pop(1)
    unittest.main()
