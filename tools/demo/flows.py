"""Act 2: samples from the same noise under several plans, as numbers and as pictures."""

import csv
import math

from demo import classify, judge, pictures, text

MODELS = ("pinwheel", "rings")
ROWS = 20000
SEED = 7
REFERENCE = "dopri5:1e-6"
PLANS = ("euler:1", "learned:1", "midpoint:1", "learned:2", "heun:1", "hyper_heun:1", "learned:4")
PANELS = ("midpoint:1", "learned:2")  # at equal evaluations of the field, beside the reference


def read_points(path):
    with open(path, newline="", encoding="utf-8") as file:
        rows = csv.reader(file)
        next(rows)
        return [(float(x), float(y)) for x, y in rows]


def mean_distance(points, reference):
    return math.fsum(math.dist(p, q) for p, q in zip(points, reference, strict=True)) / len(points)


def sample(daemon, model, plan, folder):
    """The daemon's information about the solve, and the file of points."""
    path = folder / f"{model}-{plan.replace(':', '-')}.csv"
    info = daemon.ask("sample", f"--model={model}", f"--plan={plan}", f"--rows={ROWS}", f"--seed={SEED}",
                      f"--out={path}")
    return info, path


def mean(value):
    """The mean of counts per row, which are one number where all rows have the same."""
    return math.fsum(value) / len(value) if isinstance(value, list) else value


def measure(daemon, model, folder):
    plans = [REFERENCE, *classify.served(daemon, model, PLANS)]
    lines, reference = [], None
    for plan in plans:
        info, path = sample(daemon, model, plan, folder)
        points = read_points(path)
        reference = reference or points
        lines.append({"model": model, "plan": plan, "nfe": mean(info["nfe"]), "points": path, "device": info["device"],
                      "correction_evaluations": mean(info["correction_evaluations"]), "macs": mean(info["macs"]),
                      "error_mean": mean_distance(points, reference), "seconds": info["solve_seconds"]})
    return [lines[0], *sorted(lines[1:], key=lambda p: p["macs"])]


def play(teller, daemon, folder, out):
    everything = []
    for model in MODELS:
        with teller.waiting(f"{ROWS} samples of {model} under each plan"):
            lines = measure(daemon, model, folder)
        everything += lines
    teller.table(["flow", "plan", "mean distance", "NFE", "g", "MACs", "solve s"],
                 [[p["model"], p["plan"], text.number(p["error_mean"]), text.whole(p["nfe"]),
                   text.whole(p["correction_evaluations"]), text.macs(p["macs"]), text.number(p["seconds"])]
                  for p in everything])
    teller.say(f"  mean distance: of a point to the {REFERENCE} point of the same noise; NFE, g and MACs per point.\n"
               "  learned:2, midpoint:1 and hyper_heun:1 evaluate the field twice; g comes on top and is in MACs.")
    for model in MODELS:
        mine = [p for p in everything if p["model"] == model]
        for sentence in judge.verdicts(mine):
            teller.say(f"  - {model}, {sentence}.")
        shown = [p for p in mine if p["plan"] in (REFERENCE, *PANELS)]
        teller.say(f"  {pictures.draw_panels(out / f'{model}.png', shown)}")
    return [{key: value for key, value in p.items() if key != "points"} for p in everything]
