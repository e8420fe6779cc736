"""Act 3: what led to an observation. Samples of a conditional flow beside the true posterior of its simulator."""

import csv
import math
import random

from demo import classify, flows, pictures, text

MODEL = "two_moons"
OBSERVED = (0.0, 0.0)
ROWS = 10000
SEED = 7
REFERENCE = "dopri5:1e-6"
PLANS = ("learned:4",)
RADIUS, DEVIATION, SHIFT = 0.1, 0.01, 0.25  # of the simulator: training/data/density.cc


def truth(observed, rows, seed):
    """Exact samples of the posterior: the parameters, uniform on [-1, 1]^2, that led to the observation."""
    generator = random.Random(seed)
    points = []
    while len(points) < rows:
        angle, radius = math.pi * (generator.random() - 0.5), generator.gauss(RADIUS, DEVIATION)
        fold = radius * math.cos(angle) + SHIFT - observed[0]  # |x + y| / sqrt(2)
        across = observed[1] - radius * math.sin(angle)  # (y - x) / sqrt(2)
        along = fold if generator.random() < 0.5 else -fold
        x, y = (along - across) / math.sqrt(2), (along + across) / math.sqrt(2)
        if fold >= 0 and abs(x) <= 1 and abs(y) <= 1:
            points.append((x, y))
    return points


def implied_radius(point, observed):
    """The radius that the simulator must have drawn to make the observation of this parameter."""
    x, y = point
    return math.hypot(observed[0] - SHIFT + abs(x + y) / math.sqrt(2), observed[1] - (y - x) / math.sqrt(2))


def describe(points, observed):
    """Mean and deviation of the implied radii, and the share of the points in the upper crescent."""
    radii = [implied_radius(point, observed) for point in points]
    mean = math.fsum(radii) / len(radii)
    deviation = math.sqrt(math.fsum((radius - mean) ** 2 for radius in radii) / len(radii))
    return {"radius": mean, "deviation": deviation, "upper": sum(x + y > 0 for x, y in points) / len(points)}


def sample(daemon, plan, folder):
    path = folder / f"{MODEL}-{plan.replace(':', '-')}.csv"
    info = daemon.ask("sample", f"--model={MODEL}", f"--condition={','.join(map(str, OBSERVED))}", f"--plan={plan}",
                      f"--rows={ROWS}", f"--seed={SEED}", f"--out={path}")
    return {"plan": plan, "title": f"{plan}   {text.whole(flows.mean(info['nfe']))} NFE", "points": path,
            "nfe": flows.mean(info["nfe"]), "seconds": info["solve_seconds"], **describe(flows.read_points(path), OBSERVED)}


def write_truth(folder):
    path = folder / f"{MODEL}-truth.csv"
    points = truth(OBSERVED, ROWS, SEED)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("x0", "x1"), *points])
    return {"plan": "true posterior", "title": "true posterior", "points": path, "nfe": None, "seconds": None,
            **describe(points, OBSERVED)}


def play(teller, daemon, folder, out):
    plans = [REFERENCE, *(plan for plan in classify.served(daemon, MODEL, PLANS) if plan in PLANS)]
    with teller.waiting(f"{ROWS} samples of the posterior under each plan"):
        lines = [write_truth(folder), *(sample(daemon, plan, folder) for plan in plans)]
    teller.table(["samples", "radius", "deviation", "upper %", "NFE", "solve s"],
                 [[line["plan"], text.number(line["radius"]), text.number(line["deviation"]), text.percent(line["upper"]),
                   text.NONE if line["nfe"] is None else text.whole(line["nfe"]), text.number(line["seconds"])]
                  for line in lines])
    teller.say(f"  The simulator made {OBSERVED} of a parameter; the flow draws the parameters that may have led to it. radius: that\n"
               f"  the simulator must have drawn for a sample, {RADIUS} with a deviation of {DEVIATION}; upper: share of one of two crescents.")
    teller.say(f"  {pictures.draw_panels(out / f'{MODEL}.png', lines)}")
    return [{key: value for key, value in line.items() if key not in ("points", "title")} for line in lines]
