"""Act 4: what the daemon's own metrics say of all this."""

from demo import prometheus, text

LATENCY = "hyperserve_request_duration_seconds"
ROWS = "hyperserve_rows_total"
GENERATION = "hyperserve_active_generation"
FEW = 100  # of fewer requests than this, no more is said of a quantile than the upper bound of its bucket


def latencies(samples):
    """[(model, call, plan, requests, buckets)] of calls that solve, sorted."""
    found = prometheus.histograms(samples, LATENCY, ("model", "call", "plan"))
    return [(*key, buckets[-1][1], buckets) for key, buckets in sorted(found.items())
            if buckets[-1][1] > 0 and key[2] != "none"]


def quantile_text(buckets, q):
    if buckets[-1][1] < FEW:
        return f"<= {text.milliseconds(prometheus.bucket_of(buckets, q)[1])}"
    return text.milliseconds(prometheus.quantile(buckets, q))


def rows_by_status(samples):
    counts = {}
    for sample in samples:
        if sample.name == ROWS:
            status = sample.labels["status"]
            counts[status] = counts.get(status, 0) + sample.value
    return counts


def generations(samples):
    return [(s.labels["model"], s.labels["method"], s.value) for s in samples if s.name == GENERATION]


def play(teller, daemon, out):
    page = prometheus.scrape(daemon.addresses["http_address"])
    (out / "metrics.txt").write_text(page)
    samples = prometheus.parse(page)
    lines = latencies(samples)
    teller.table(["model", "call", "plan", "requests", "p50 ms", "p99 ms"],
                 [[model, call, plan, text.whole(requests), quantile_text(buckets, 0.5), quantile_text(buckets, 0.99)]
                  for model, call, plan, requests, buckets in lines])
    teller.say(f"  from the histogram {LATENCY}: linear within a bucket; of fewer than\n"
               f"  {FEW} requests only the bucket's upper bound. Calls without a plan stand on the page alone.")
    rows = ", ".join(f"{text.whole(count)} {status}" for status, count in sorted(rows_by_status(samples).items()))
    teller.say(f"  rows solved: {rows}.")
    active = ", ".join(f"{model} hyper_{method} {text.whole(number)}" for model, method, number in generations(samples))
    teller.say(f"  generations served: {active}.")
    teller.say(f"  the whole page: {out / 'metrics.txt'}")
    return [{"model": model, "call": call, "plan": plan, "requests": requests,
             "p50": prometheus.quantile(buckets, 0.5), "p99": prometheus.quantile(buckets, 0.99)}
            for model, call, plan, requests, buckets in lines]
