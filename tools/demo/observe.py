"""Act 5: the metrics of the daemon after the other acts."""

from concurrent import futures

from demo import classify, flows, prometheus, text

LATENCY = "hyperserve_request_duration_seconds"
PLAN_REQUESTS, PLAN_SECONDS = "hyperserve_plan_requests_total", "hyperserve_plan_seconds_total"
ROWS = "hyperserve_rows_total"
GENERATION = "hyperserve_active_generation"
FEW = 100  # the mean of fewer requests means little

# Small requests of several plans. The acts before sent few large ones, too few for percentiles.
ROWS_A_REQUEST = {classify.MODEL: 1, **dict.fromkeys(flows.MODELS, 16)}
PLANS = {classify.MODEL: ("euler:1", "hyper_euler:1", "midpoint:2"),
         **dict.fromkeys(flows.MODELS, ("heun:1", "hyper_heun:1", "dopri5:1e-3"))}


def traffic(daemon, images):
    """Sends requests to all models at once, one plan after another. A failure fails the demo."""
    def ask(model):
        rows = [images, "--limit=256"] if model == classify.MODEL else []
        for plan in PLANS[model]:
            daemon.ask("bench", *rows, f"--model={model}", f"--plan={plan}", f"--count={FEW}", "--duration=20s",
                       f"--rows={ROWS_A_REQUEST[model]}", "--concurrency=1")

    with futures.ThreadPoolExecutor() as pool:
        list(pool.map(ask, PLANS))


def scrape(daemon):
    page = prometheus.scrape(daemon.addresses["http_address"])
    return page, prometheus.parse(page)


def latencies(samples, earlier):
    """[(model, requests, p50, p99)], sorted, for models that have answered since `earlier`."""
    later, before = (prometheus.histograms(s, LATENCY, ("model",)) for s in (samples, earlier))
    found = prometheus.increase(later, before)
    return [(*key, buckets[-1][1], prometheus.quantile(buckets, 0.5), prometheus.quantile(buckets, 0.99))
            for key, buckets in sorted(found.items()) if buckets[-1][1] > 0 and key != ("other",)]


def by_plan(samples, family):
    return {(s.labels["model"], s.labels["plan"]): s.value for s in samples if s.name == family}


def plan_means(samples, earlier):
    """[(model, plan, requests, mean seconds)], sorted, for plans that have answered since `earlier`."""
    requests, seconds = (by_plan(samples, family) for family in (PLAN_REQUESTS, PLAN_SECONDS))
    requests_before, seconds_before = (by_plan(earlier, family) for family in (PLAN_REQUESTS, PLAN_SECONDS))
    more = {key: count - requests_before.get(key, 0) for key, count in requests.items()}
    return [(*key, count, (seconds[key] - seconds_before.get(key, 0)) / count) for key, count in sorted(more.items()) if count > 0]


def rows_by_status(samples):
    counts = {}
    for sample in samples:
        if sample.name == ROWS:
            status = sample.labels["status"]
            counts[status] = counts.get(status, 0) + sample.value
    return counts


def generations(samples):
    return [(s.labels["model"], s.labels["method"], s.value) for s in samples if s.name == GENERATION]


def play(teller, daemon, data_dir, earlier, out):
    with teller.waiting("small requests under several plans"):
        traffic(daemon, classify.find(data_dir, classify.IMAGE_FILE))
    page, samples = scrape(daemon)
    (out / "metrics.txt").write_text(page)
    teller.table(["model", "requests", "p50 ms", "p99 ms"],
                 [[model, text.whole(requests), text.milliseconds(p50), text.milliseconds(p99)]
                  for model, requests, p50, p99 in latencies(samples, earlier)])
    teller.say(f"  since the refresh began, from the histogram {LATENCY}, linear within a bucket.")
    lines = plan_means(samples, earlier)
    shown = [line for line in lines if line[2] >= FEW]
    teller.table(["model", "plan", "requests", "mean ms"],
                 [[model, plan, text.whole(requests), text.milliseconds(mean)] for model, plan, requests, mean in shown])
    teller.say(f"  from {PLAN_SECONDS} and {PLAN_REQUESTS};")
    teller.say(f"  {len(lines) - len(shown)} more lines, of fewer than {FEW} requests each, stand on the page alone.")
    rows = ", ".join(f"{text.whole(count)} {status}" for status, count in sorted(rows_by_status(samples).items()))
    teller.say(f"  rows solved: {rows}.")
    active = ", ".join(f"{model} {text.hypersolver(method)} {text.whole(number)}" for model, method, number in generations(samples))
    teller.say(f"  generations served: {active}.")
    teller.say(f"  the whole page: {out / 'metrics.txt'}")
    return [dict(zip(("model", "plan", "requests", "mean"), line)) for line in lines]
