#!/usr/bin/env python3
"""Runs the Python of docs/MODEL_FORMAT.md as a reader would, in an empty folder, and checks the folders that it writes.

Usage: model_format_test.py MODEL_FORMAT.md CHECKER..., where `CHECKER... FOLDER` fails if anything does not fit.
Exits with 77 (skipped) where PyTorch cannot be imported, as with the light set of wheels.
"""
import os
import re
import subprocess
import sys
import tempfile

try:
    import torch  # noqa: F401
except (ImportError, OSError) as error:
    print("skipped: no PyTorch:", error)
    sys.exit(77)

page, checker = os.path.abspath(sys.argv[1]), sys.argv[2:]
snippets = re.findall(r"^```python\n(.*?)^```", open(page).read(), re.DOTALL | re.MULTILINE)
assert len(snippets) == 2, len(snippets)
for snippet in snippets:
    assert len([line for line in snippet.splitlines() if line.strip()]) <= 20, "more than 20 lines"

with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    names = {}
    for snippet in snippets:
        exec(compile(snippet, page, "exec"), names)
        subprocess.run([*checker, "repository/spiral"], check=True)
    # The checker must be one that can fail.
    os.remove("repository/spiral/hypersolvers/heun/1/probe.safetensors")
    assert subprocess.run([*checker, "repository"]).returncode != 0
    os.chdir("/")
print("ok")
