"""Measures the fused flow kernel and its peers in one run and writes the figures of this card.

    python3 bench/flow_results.py "build/release/bin/bench_flow_kernel" COMMIT bench/results
"""

import datetime
import json
import pathlib
import shlex
import subprocess
import sys

import flow_peers


def entries(kernel, commit):
    """The card, what it takes for an empty kernel, and one entry a row of the table."""
    lines = subprocess.run([*shlex.split(kernel), "--json"], check=True, capture_output=True, text=True).stdout
    head, *rows = (json.loads(line) for line in lines.splitlines())
    peers = dict(flow_peers.measure())
    for row in rows:
        row = {"work": f"flow 2-128-128-128-2 {row.pop('activation')}", **row, "commit": commit,
               "date": datetime.date.today().isoformat()}
        if row["work"].endswith("softplus") and row["plan"] == "hyper_heun:1":
            row["peers_ms"] = {name: round(ms, 4) for name, ms in peers[row["rows"]].items()}
        yield head, row


def put(folder, head, rows):
    """Puts the rows into the file of this card, in place of those of the same work."""
    path = pathlib.Path(folder) / (head["card"].lower().replace(" ", "_") + ".json")
    path.parent.mkdir(parents=True, exist_ok=True)
    known = json.loads(path.read_text()) if path.exists() else {}
    measured = {row["work"] for row in rows}
    kept = [row for row in known.get("rows", []) if row["work"] not in measured]
    path.write_text(json.dumps({**known, **head, "rows": kept + list(rows)}, indent=1) + "\n")
    print(f"{head['card']}: {len(rows)} rows in {path}")


def main(kernel, commit, folder):
    heads, rows = zip(*entries(kernel, commit))
    put(folder, heads[0], rows)


if __name__ == "__main__":
    main(*sys.argv[1:])
