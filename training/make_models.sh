#!/usr/bin/env bash
# Makes the repository models/ from the recipes: base models, corrections, learned solvers, calibration.
#   training/make_models.sh BIN_DIR DATA_DIR OUT_DIR [DEVICE [CIFAR_DIR]]
# BIN_DIR holds hyperserve-train (HYPERSERVE_TRAIN names another command), DATA_DIR the IDX files of Fashion-MNIST,
# CIFAR_DIR the binary batches of CIFAR-10; without them cifar is left out. The models are made side by side, each by its
# own process; logs stand in OUT_DIR/logs, out of the repository's way.
# A model that is in OUT_DIR/models already is left as it is, and said to have failed.
set -euo pipefail
if (($# < 3 || $# > 5)); then
  echo "usage: training/make_models.sh BIN_DIR DATA_DIR OUT_DIR [DEVICE [CIFAR_DIR]]" >&2
  exit 2
fi
bin=$1 fashion=$2 out=$3 device=${4:-auto} cifar=${5:-}
train=${HYPERSERVE_TRAIN:-$bin/hyperserve-train}
recipes=$(cd "$(dirname "$0")" && pwd)/recipes
mkdir -p "$out/logs"

make_model() {
  local data=$fashion
  if [[ $1 == cifar ]]; then data=$cifar; fi
  local flags=(--models="$out/models" --data="$data" --device="$device")
  local base=(--recipe="$recipes/$1.json" "${flags[@]}")
  $train model "${base[@]}" && $train hypersolver "${base[@]}" &&
    $train hypersolver --recipe="$recipes/$1_learned.json" "${flags[@]}" &&
    $train bounds --recipe="$recipes/$1_learned.json" "${flags[@]}" && $train calibrate "${base[@]}"
}

jobs=()
for name in checkerboard ${cifar:+cifar} circles fashion pinwheel rings two_moons; do
  make_model "$name" > "$out/logs/$name.log" 2>&1 &
  jobs+=("$!:$name")
done
failed=0
for job in "${jobs[@]}"; do
  if wait "${job%%:*}"; then
    echo "${job##*:}: done"
  else
    echo "${job##*:}: FAILED, see $out/logs/${job##*:}.log"
    failed=1
  fi
done
exit $failed
