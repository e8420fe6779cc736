"""Reads Prometheus' text format, and computes quantiles from its histograms."""

import collections
import math
import re
import urllib.request

Sample = collections.namedtuple("Sample", "name labels value")

LINE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?$")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"\s*,?\s*')
ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


def parse(text):
    """The samples of a page, in order. ValueError quotes a line that has another format."""
    samples = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        match = LINE.match(line)
        if not match:
            raise ValueError(f"not a line of Prometheus' text format: {line!r}")
        labels = {name: re.sub(r"\\.", lambda m: ESCAPES.get(m.group(), m.group()), value)
                  for name, value in LABEL.findall(match.group(2) or "")}
        samples.append(Sample(match.group(1), labels, float(match.group(3))))
    return samples


def scrape(address):
    """The text of the metrics page."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as reply:
        return reply.read().decode()


def histograms(samples, family, labels):
    """{values of `labels`: [(upper bound, cumulative count), ...], ascending}, summed over all other labels."""
    found = collections.defaultdict(lambda: collections.defaultdict(float))
    for sample in samples:
        if sample.name == family + "_bucket":
            key = tuple(sample.labels.get(label, "") for label in labels)
            found[key][float(sample.labels["le"])] += sample.value
    return {key: sorted(buckets.items()) for key, buckets in found.items()}


def increase(later, earlier):
    """The counts between two pages, both as `histograms` returns them."""
    before = {key: dict(buckets) for key, buckets in earlier.items()}
    return {key: [(bound, count - before.get(key, {}).get(bound, 0)) for bound, count in buckets]
            for key, buckets in later.items()}


def quantile(buckets, q):
    """As PromQL's histogram_quantile: linear within a bucket; the first bucket begins at 0.

    None for an empty histogram. The last finite bound, which is too low, where the quantile lies beyond it.
    """
    rank = q * buckets[-1][1] if buckets else 0
    low, below = 0.0, 0.0
    for bound, cumulative in buckets:
        if cumulative >= rank and cumulative > below:
            return low if math.isinf(bound) else low + (bound - low) * (rank - below) / (cumulative - below)
        low, below = bound, cumulative
    return None
