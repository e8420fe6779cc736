"""Checks that C++ and CUDA sources are formatted by .clang-format (`make format` does it)."""

import subprocess

import source_tree


def check(tree):
    files = tree.cpp()
    if not files:
        return
    # clang-format looks for .clang-format from each file upwards.
    run = subprocess.run(["clang-format", "--dry-run", "-Werror", "--style=file", *files],
                         cwd=tree.root, capture_output=True, text=True)
    seen = set()
    for line in run.stderr.splitlines():
        file = line.split(":")[0]
        if "error:" in line and file not in seen:
            seen.add(file)
            yield ":".join(line.split(":")[:2]) + ": not formatted"
    if run.returncode != 0 and not seen:
        yield f"clang-format: {run.stderr.strip()}"


if __name__ == "__main__":
    source_tree.main(check, __doc__)
