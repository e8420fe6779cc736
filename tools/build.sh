#!/usr/bin/env bash
# Builds a preset, and configures it first if its arguments have changed: tools/build.sh PRESET [TARGET...]
set -euo pipefail
. "$(dirname "$0")/env.sh"
preset=$1
shift
cd "$hyperserve_root"
folder=build/$preset
mkdir -p "$folder"

if [ ! -e "$folder/build.ninja" ] || [ "$(cat "$folder/configured-with" 2>/dev/null)" != "${cmake_arguments[*]}" ]; then
  echo "build: configuring $folder"
  if ! cmake --fresh --preset "$preset" "${cmake_arguments[@]}" >"$folder/configure.log" 2>&1; then
    cat "$folder/configure.log" >&2
    exit 1
  fi
  echo "${cmake_arguments[*]}" >"$folder/configured-with"
fi

targets=("$@")
echo "build: $folder ${targets[*]} ($jobs at once; a first build takes a while)"
progress=--quiet
if [ -t 1 ]; then progress=; fi
ninja $progress -C "$folder" -j "$jobs" "${targets[@]}"
