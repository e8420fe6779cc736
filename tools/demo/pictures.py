"""Pictures by gnuplot. Without it, a line names each skipped picture."""

import shutil
import subprocess

from demo import text
from demo.programs import Failure

INK = "#1f3a93"
STYLE = """
set terminal pngcairo size {width},{height} background '#ffffff' font 'Sans,13' noenhanced
set output '{path}'
set datafile separator ','
set border linecolor rgb '#808080'
set tics textcolor rgb '#606060'
"""


def gnuplot(path, script):
    """Draws the picture; a line says where it is or why it was skipped."""
    program = shutil.which("gnuplot")
    if program is None:
        return f"skipped {path.name}: gnuplot is not installed"
    done = subprocess.run([program], input=script, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0 or not path.is_file():
        raise Failure(f"gnuplot drew no {path}:\n{done.stderr[-2000:]}")
    return f"picture: {path}"


def caption(line):
    if "title" in line:
        return line["title"]
    cost = f"{text.whole(line['nfe'])} NFE"
    if line["correction_evaluations"]:
        cost += f" + {text.whole(line['correction_evaluations'])} g"
    if line["error_mean"]:
        return f"{line['plan']}   {cost}, mean distance {text.number(line['error_mean'])}"
    return f"{line['plan']}   {cost}, the reference"


def draw_panels(path, lines):
    """Scatter plots side by side. All have the ranges of the points in the first."""
    script = STYLE.format(path=path, width=560 * len(lines), height=600)
    script += f"stats '{lines[0]['points']}' using 1:2 skip 1 nooutput name 'R'\n"
    script += "m = 0.12 * (R_max_x - R_min_x > R_max_y - R_min_y ? R_max_x - R_min_x : R_max_y - R_min_y)\n"
    script += "set xrange [R_min_x - m:R_max_x + m]\nset yrange [R_min_y - m:R_max_y + m]\n"
    script += f"set size ratio -1\nunset key\nset multiplot layout 1,{len(lines)}\n"
    for line in lines:
        script += f"set title '{caption(line)}'\n"
        script += f"plot '{line['points']}' skip 1 using 1:2 with points pointtype 7 pointsize 0.22 "
        script += f"linecolor rgb '#b8{INK[1:]}'\n"
    return gnuplot(path, script + "unset multiplot\n")


def draw_latencies(path, requests_csv, marks, title):
    """Latencies over time: one dot for each request, coloured by generation. `marks`: [(label, at)] as vertical lines."""
    script = STYLE.format(path=path, width=1400, height=520)
    script += f"set title '{title}'\nset xlabel 'seconds'\nset ylabel 'ms a request'\nset logscale y\nset grid\n"
    script += "set key at graph 1, graph 1.1 right horizontal\nset xrange [0:*] noextend\n"
    for i, (label, at) in enumerate(marks):
        crowded = i + 1 < len(marks) and marks[i + 1][1] - at < 5
        script += f"set arrow from {at:.3f}, graph 0 to {at:.3f}, graph 1 nohead linecolor rgb '#c0392b' dashtype 2\n"
        script += f"set label '{label}' at {at:.3f}, graph 0.95 {'right' if crowded else 'left'} "
        script += f"offset {-0.4 if crowded else 0.4},0 textcolor rgb '#c0392b'\n"
    plots = []
    for (generation, file), ink in zip(sorted(requests_csv.items()), ("7f8c8d", INK[1:], "27ae60")):
        plots.append(f"'{file}' using 1:2 with points pointtype 7 pointsize 0.25 linecolor rgb '#a0{ink}' notitle")
        plots.append(f"keyentry with points pointtype 7 linecolor rgb '#{ink}' title 'generation {generation}'")
    return gnuplot(path, script + "plot " + ", ".join(plots) + "\n")
