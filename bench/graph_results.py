"""Measures captured steps beside the steps of the readable engine and writes the figures of this card.

    python3 bench/graph_results.py "build/release/bin/bench_graphs" COMMIT bench/results
"""

import datetime
import json
import shlex
import subprocess
import sys

from flow_results import put


def main(program, commit, folder):
    lines = subprocess.run([*shlex.split(program), "--json"], check=True, capture_output=True, text=True).stdout
    head, *rows = (json.loads(line) for line in lines.splitlines())
    date = datetime.date.today().isoformat()
    put(folder, head, [{**row, "commit": commit, "date": date} for row in rows])


if __name__ == "__main__":
    main(*sys.argv[1:])
