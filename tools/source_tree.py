"""The tracked files of a checkout, and how a check reports. Used by the check_*.py beside it."""

import argparse
import pathlib
import subprocess
import sys

CPP = (".h", ".cc", ".cu", ".cuh")


class SourceTree:
    """What git tracks below `root` and is still there (a dirty tree may have lost a file)."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=self.root, check=True,
                                capture_output=True, text=True).stdout
        self.files = sorted(f for f in listed.split("\0") if f and (self.root / f).is_file())

    def cpp(self):
        return [f for f in self.files if f.endswith(CPP)]

    def text(self, file):
        """None for binary files."""
        try:
            return (self.root / file).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            return None


def main(check, documentation):
    """Prints what check(tree) finds, one problem a line; exits 1 if it found any."""
    parser = argparse.ArgumentParser(description=documentation)
    parser.add_argument("--root", default=pathlib.Path(__file__).resolve().parent.parent)
    problems = list(check(SourceTree(parser.parse_args().root)))
    for problem in problems:
        print(problem)
    print(f"{len(problems)} problems")
    sys.exit(1 if problems else 0)
