"""Measures the fused convolution kernel and its peers in one run and puts the figures into the file of this card, in
place of those of the same work.

    python3 bench/conv_results.py "build/release/bin/bench_conv_kernel" COMMIT bench/results
"""

import datetime
import json
import shlex
import subprocess
import sys

import conv_peers
from flow_results import put

WORK = "net 32-46-46-32 of 3x3 convolutions, 28x28"


def main(kernel, commit, folder):
    lines = subprocess.run([*shlex.split(kernel), "--json"], check=True, capture_output=True, text=True).stdout
    head, *rows = (json.loads(line) for line in lines.splitlines())
    peers = conv_peers.measure()
    for row in rows:
        of_row = peers.get((row["plan"], row["rows"]))
        if of_row:
            row["peers_ms"] = {name: round(ms, 4) for name, ms in of_row.items()}
    today = datetime.date.today().isoformat()
    put(folder, head, [{"work": WORK, "tier": "fast", **row, "commit": commit, "date": today} for row in rows])


if __name__ == "__main__":
    main(*sys.argv[1:])
