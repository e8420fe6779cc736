#!/usr/bin/env bash
# Builds a preset, and configures it first if its arguments have changed: tools/build.sh PRESET [TARGET...]
#   HYPERSERVE_DEVICE=cpu|cuda   a folder keeps the device that it was configured for unless this is set
set -euo pipefail
preset=$1
shift
configured=$(dirname "$0")/../build/$preset/configured-with
if [ -z "${HYPERSERVE_DEVICE:-}" ] && grep -qs HYPERSERVE_CUDA=ON "$configured"; then
  export HYPERSERVE_DEVICE=cuda
  echo "build: build/$preset stays a build for cuda; HYPERSERVE_DEVICE=cpu makes it one for the CPU"
fi
. "$(dirname "$0")/env.sh"
cd "$hyperserve_root"
folder=build/$preset
mkdir -p "$folder"

if [ ! -e "$folder/build.ninja" ] || [ "$(cat "$folder/configured-with" 2>/dev/null)" != "${cmake_arguments[*]}" ]; then
  echo "build: configuring $folder for $device ($why)"
  if ! cmake --fresh --preset "$preset" "${cmake_arguments[@]}" >"$folder/configure.log" 2>&1; then
    cat "$folder/configure.log" >&2
    exit 1
  fi
  echo "${cmake_arguments[*]}" >"$folder/configured-with"
fi

targets=("$@")
echo "build: $folder ${targets[*]} ($jobs at once; a first build takes a while)"
# A terminal shows a line that changes. Elsewhere ninja prints a line for each step: one of them every 20 seconds is enough.
seldom() { awk '/^\[[0-9]+\/[0-9]+\] / { if (systime() - last >= 20) { last = systime(); print; fflush() } next } { print; fflush() }'; }
if [ -t 1 ]; then
  ninja -C "$folder" -j "$jobs" "${targets[@]}"
else
  ninja -C "$folder" -j "$jobs" "${targets[@]}" | seldom
fi
