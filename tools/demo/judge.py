"""Comparisons of measured plans and of requests: pure functions of the output of hyperserve-client."""


def steps_of(plan):
    """The number of steps of a fixed plan, None for an adaptive one: `hyper_heun:2/fast` has 2."""
    argument = plan.split(":", 1)[1].split("/")[0] if ":" in plan else ""
    return int(argument) if argument.isdigit() else None


def hypersolved(plan):
    return plan.startswith(("hyper_", "learned:"))


def tier(plan):
    """The tier that a plan names, empty where it names none: that is exact."""
    return plan.partition("/")[2]


def best_within(plans, macs):
    """The classical fixed plan with the least error among those of at most 1.001 * `macs`."""
    classical = [p for p in plans if not hypersolved(p["plan"]) and steps_of(p["plan"]) is not None]
    affordable = [p for p in classical if p["macs"] <= 1.001 * macs]
    return min(affordable, key=lambda p: p["error_mean"], default=None)


def cheapest_as_good(plans, error):
    """The classical fixed plan with the fewest MACs among those of at most this error."""
    classical = [p for p in plans if not hypersolved(p["plan"]) and steps_of(p["plan"]) is not None]
    good = [p for p in classical if p["error_mean"] <= error]
    return min(good, key=lambda p: (p["macs"], p["error_mean"]), default=None)


def with_rivals(plans, calibrated):
    """`plans`, and for each hypersolved one its classical rivals: the best within its MACs and the cheapest as good.

    The calibration names the rivals, of the plan's own tier: not every device has the others. Without them, a
    hypersolved plan could win because its rival is missing.
    """
    known = {p["plan"]: p for p in calibrated}
    chosen = dict.fromkeys(plans)
    for plan in filter(hypersolved, plans):
        if plan in known:
            same_tier = [p for p in calibrated if tier(p["plan"]) == tier(plan)]
            rivals = (best_within(same_tier, known[plan]["macs"]),
                      cheapest_as_good(same_tier, known[plan]["error_mean"]))
            chosen.update((rival["plan"], None) for rival in rivals if rival)
    return list(chosen)


def times(ratio):
    return f"{ratio:.1f} times" if ratio < 10 else f"{ratio:.0f} times"


def verdict(plan, plans):
    """One line for a hypersolved plan: who wins at its cost, and the classical cost of the same error."""
    name, error = plan["plan"], plan["error_mean"]
    rival = best_within(plans, plan["macs"])
    if rival and rival["error_mean"] <= error:
        return f"{name} loses: within its MACs, {rival['plan']} has {times(error / rival['error_mean'])} less error"
    if rival:
        first = f"wins: {times(rival['error_mean'] / error)} less error than {rival['plan']}, " \
                "the best classical plan within its MACs"
    else:
        first = "costs less than any classical plan here"
    as_good = cheapest_as_good(plans, error)
    if as_good:
        return f"{name} {first}; {as_good['plan']} is as good for {times(as_good['macs'] / plan['macs'])} the MACs"
    return f"{name} {first}; no classical plan here is as good"


def verdicts(plans):
    return [verdict(plan, plans) for plan in plans if hypersolved(plan["plan"])]


def percentile(values, p):
    """The smallest of the values such that at least the fraction p of them is at most it; None without values."""
    ordered = sorted(values)
    if not ordered:
        return None
    rank = -(-len(ordered) * p // 1)
    return ordered[max(int(rank), 1) - 1]


def phases(requests, marks):
    """Groups requests by the phase in which they started. `marks`: [(name, begin)], ascending.

    For each phase: name, number of requests and of failed ones, generations, p50, p99 and the longest. Requests before
    the first phase are dropped.
    """
    summary = []
    ends = [begin for _, begin in marks[1:]] + [float("inf")]
    for (name, begin), end in zip(marks, ends):
        inside = [r for r in requests if begin <= r["start"] < end]
        good = [r["seconds"] for r in inside if not failed(r)]
        summary.append({"phase": name, "requests": len(inside), "failed": len(inside) - len(good),
                        "generations": sorted({r["generation"] for r in inside if not failed(r)}),
                        "p50": percentile(good, 0.5), "p99": percentile(good, 0.99),
                        "max": max(good, default=None)})
    return summary


def failed(request):
    return request["code"] != "OK" or request["rows_failed"] > 0


def longest_pause(requests, begin, end):
    """The longest time within [begin, end] without a request under way, in seconds."""
    pause, at = 0.0, begin
    for request in sorted(requests, key=lambda r: r["start"]):
        if request["start"] > end:
            break
        pause = max(pause, request["start"] - at)
        at = max(at, request["start"] + request["seconds"])
    return max(pause, end - at)
