"""Act 4: what the daemon's own metrics say of all this."""

from demo import prometheus, text

LATENCY = "hyperserve_request_duration_seconds"
ROWS = "hyperserve_rows_total"
GENERATION = "hyperserve_active_generation"


def latencies(samples):
    """[(model, call, plan, requests, p50, p99)], sorted."""
    return [(*key, buckets[-1][1], prometheus.quantile(buckets, 0.5), prometheus.quantile(buckets, 0.99))
            for key, buckets in sorted(prometheus.histograms(samples, LATENCY, ("model", "call", "plan")).items())
            if buckets[-1][1] > 0]


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
    page = prometheus.scrape(daemon.ports["http"])
    (out / "metrics.txt").write_text(page)
    samples = prometheus.parse(page)
    lines = latencies(samples)
    teller.table(["model", "call", "plan", "requests", "p50 ms", "p99 ms"],
                 [[model, call, plan or text.NONE, text.whole(requests), text.milliseconds(p50), text.milliseconds(p99)]
                  for model, call, plan, requests, p50, p99 in lines])
    teller.say(f"  from the histogram {LATENCY}, linear within a bucket: no finer than its bounds.")
    rows = ", ".join(f"{text.whole(count)} {status}" for status, count in sorted(rows_by_status(samples).items()))
    teller.say(f"  rows solved: {rows}.")
    active = ", ".join(f"{model} hyper_{method} {text.whole(number)}" for model, method, number in generations(samples))
    teller.say(f"  generations served: {active}.")
    teller.say(f"  the whole page: {out / 'metrics.txt'}")
    return [dict(zip(("model", "call", "plan", "requests", "p50", "p99"), line)) for line in lines]
