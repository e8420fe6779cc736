"""Checks that no tracked text is marked as unfinished or names a path of one machine."""

import re

import source_tree

# Joined from parts, so that the check does not find this line.
UNFINISHED = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "X" * 3]) + r")\b")
MACHINE_PATH = re.compile(r"(?<![\w.$}])/(work|root|home/\w+|Users|mnt)/\w")


def check(tree):
    for file in tree.files:
        text = tree.text(file)
        if text is None:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if UNFINISHED.search(line):
                yield f"{file}:{number}: unfinished: {line.strip()[:80]}"
            if MACHINE_PATH.search(line):
                yield f"{file}:{number}: a path of one machine: {line.strip()[:80]}"


if __name__ == "__main__":
    source_tree.main(check, __doc__)
