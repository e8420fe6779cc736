"""A small git checkout with what a test plants in it."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import source_tree  # noqa: E402


class PlantedTreeTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.git("init", "-q")
        self.plant(".clang-format", (ROOT / ".clang-format").read_text())

    def git(self, *arguments):
        subprocess.run(["git", *arguments], cwd=self.root, check=True)

    def plant(self, file, text):
        path = self.root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        self.git("add", "-f", file)

    def found(self, check):
        return list(check(source_tree.SourceTree(self.root)))

    def assert_found(self, check, *fragments):
        """Exactly one problem for each fragment, in any order."""
        found = self.found(check)
        self.assertEqual(len(found), len(fragments), found)
        for fragment in fragments:
            self.assertTrue(any(fragment in problem for problem in found), (fragment, found))
