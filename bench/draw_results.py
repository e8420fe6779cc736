"""Draws bench/results/<card>.json: milliseconds of each row that has peers, ours, theirs and the floor, on a logarithmic axis.

    python3 bench/draw_results.py bench/results/nvidia_h200.json docs/speed.svg
"""

import html
import json
import math
import pathlib
import sys

LEFT, WIDTH, LINE, TOP = 330, 560, 18, 64  # pixels
MARKS = {"ours": ("#c2410c", "circle"), "floor": ("#6b7280", "bar")}  # then the peers, in the order of the file
PEER_COLOURS = ["#1d4ed8", "#0f766e", "#7e22ce", "#a16207", "#475569"]


def points(row):
    """What is marked on a row's line, by name; milliseconds."""
    found = {"ours": row["ms"], **row["peers_ms"]}
    return found | {"floor": row["floor_ms"]} if "floor_ms" in row else found


def mark(x, y, colour, kind):
    if kind == "bar":
        return f'<rect x="{x - 1:.1f}" y="{y - 7}" width="2" height="12" fill="{colour}"/>'
    filled = colour if kind == "circle" else "none"
    return f'<circle cx="{x:.1f}" cy="{y - 1}" r="4" fill="{filled}" stroke="{colour}" stroke-width="1.5"/>'


def draw(results):
    rows = [row for row in results["rows"] if row.get("peers_ms")]
    peers = list(dict.fromkeys(name for row in rows for name in row["peers_ms"]))
    marks = MARKS | {name: (PEER_COLOURS[i % len(PEER_COLOURS)], "ring") for i, name in enumerate(peers)}
    numbers = [ms for row in rows for ms in points(row).values()]
    low, high = math.floor(math.log10(min(numbers))), math.ceil(math.log10(max(numbers)))

    def place(ms):
        return LEFT + WIDTH * (math.log10(ms) - low) / (high - low)

    lines, y, work = [], TOP, None
    for row in rows:
        if row["work"] != work:
            work = row["work"]
            y += LINE
            lines.append(f'<text x="8" y="{y + 3}" font-weight="bold">{html.escape(work)}</text>')
            y += LINE
        label = f"{row['plan']}, {row['rows']:,} rows, {row['tier']}"
        lines.append(f'<text x="{LEFT - 10}" y="{y + 3}" text-anchor="end">{html.escape(label)}</text>')
        lines.append(f'<line x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{y - 1}" y2="{y - 1}" stroke="#e5e7eb"/>')
        lines += [mark(place(ms), y, *marks[name]) for name, ms in points(row).items()]
        y += LINE
    for power in range(low, high + 1):
        x = place(10.0**power)
        lines.insert(0, f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{y}" stroke="#d1d5db"/>')
        lines.append(f'<text x="{x:.1f}" y="{TOP - 6}" text-anchor="middle">{10.0**power:g} ms</text>')
    x = 8
    for name, (colour, kind) in marks.items():
        lines.append(mark(x + 6, 34, colour, kind) + f'<text x="{x + 16}" y="37">{html.escape(name)}</text>')
        x += 34 + 7 * len(name)
    title = f"{results['card']}: milliseconds of whole solves, from call to synchronise"
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 30}" height="{y + 10}" font-family="sans-serif" '
            f'font-size="12"><rect width="100%" height="100%" fill="white"/><text x="8" y="18" font-size="14">{html.escape(title)}'
            "</text>" + "\n".join(lines) + "</svg>\n")  # fmt: skip


def main(results, picture):
    pathlib.Path(picture).write_text(draw(json.loads(pathlib.Path(results).read_text())))


if __name__ == "__main__":
    main(*sys.argv[1:])
