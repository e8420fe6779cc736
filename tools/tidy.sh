#!/usr/bin/env bash
# clang-tidy over our sources without LibTorch. A file with it would take most of a minute.
set -euo pipefail
. "$(dirname "$0")/env.sh"
cd "$hyperserve_root"
tools/build.sh tidy hyperserve_proto hyperserve_grpc hyperserve_recipe_proto  # the generated headers

# Sources with LibTorch have its search path in their compile command.
mapfile -t sources < <(/usr/bin/python3 - build/tidy/compile_commands.json <<'PYTHON'
import json, subprocess, sys, os
tracked = set(subprocess.check_output(["git", "ls-files", "*.cc"], text=True).split())
for entry in json.load(open(sys.argv[1])):
    path = os.path.relpath(entry["file"])
    if path in tracked and "-idirafter" not in entry["command"]:
        print(path)
PYTHON
)
echo "tidy: ${#sources[@]} sources"
printf '%s\n' "${sources[@]}" | xargs -P "$jobs" -n 1 clang-tidy -p build/tidy --quiet --warnings-as-errors='*' 2>&1 |
  sed '/ warnings generated\.$/d'
