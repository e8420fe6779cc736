"""The tracked files of a checkout, and the command line and report of a check. Used by the check_*.py in this folder."""

import argparse
import pathlib
import re
import subprocess
import sys

CPP = (".h", ".cc", ".cu", ".cuh")

# Text that is not code: comments and literals, and preprocessor lines with their continuations.
NOISE = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'', re.S)
PREPROCESSOR = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.S | re.M)


def blank(match):
    """The line breaks of the match, and nothing else."""
    return "\n" * match.group().count("\n")


def code(text):
    """C++ without comments, literals and preprocessor lines. Lines keep their numbers."""
    return PREPROCESSOR.sub(blank, NOISE.sub(blank, text))


class SourceTree:
    """The files below `root` that git tracks and that exist (a dirty tree may lack some)."""

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


def main(check, documentation, mend=None):
    """Prints the problems that check(tree) yields, one in each line, and exits with 1 if there are any.

    --mend calls mend(tree) first."""
    parser = argparse.ArgumentParser(description=documentation)
    parser.add_argument("--root", default=pathlib.Path(__file__).resolve().parent.parent)
    if mend:
        parser.add_argument("--mend", action="store_true", help=mend.__doc__)
    arguments = parser.parse_args()
    if mend and arguments.mend:
        mend(SourceTree(arguments.root))
    problems = list(check(SourceTree(arguments.root)))
    for problem in problems:
        print(problem)
    print(f"{len(problems)} problems")
    sys.exit(1 if problems else 0)
