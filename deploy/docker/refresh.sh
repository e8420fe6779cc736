#!/bin/sh
# The trainer's job: fits a new correction for a model of the repository and hands it to the daemon, whose gate decides.
#   refresh.sh RECIPE MODEL ADMIN_ADDRESS
set -eu
generation=$(hyperserve-train hypersolver --recipe="$1" --models=/models --out=/scratch | tee /dev/stderr | tail -n 1)
[ -n "$generation" ] || exit 1  # the trainer has said why
hyperserve-client publish "$generation" --model="$2" --admin_address="$3"
