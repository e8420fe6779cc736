"""The demo's pure parts: quantiles, tables, verdicts, phases."""

import io
import math
import pathlib
import random
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))

from demo import judge, observe, posterior, prometheus, text  # noqa: E402

PAGE = r"""# HELP hyperserve_request_duration_seconds From arrival to answer.
# TYPE hyperserve_request_duration_seconds histogram
hyperserve_request_duration_seconds_bucket{model="a",host="x",le="0.001"} 50
hyperserve_request_duration_seconds_bucket{model="a",host="x",le="0.002"} 90
hyperserve_request_duration_seconds_bucket{model="a",host="x",le="+Inf"} 100
hyperserve_request_duration_seconds_bucket{model="a",host="y",le="0.001"} 0
hyperserve_request_duration_seconds_bucket{model="a",host="y",le="0.002"} 100
hyperserve_request_duration_seconds_bucket{model="a",host="y",le="+Inf"} 100
hyperserve_request_duration_seconds_bucket{model="other",host="y",le="+Inf"} 3
hyperserve_plan_requests_total{model="a",plan="heun:1"} 4
hyperserve_plan_requests_total{model="a",plan="other"} 2
hyperserve_plan_seconds_total{model="a",plan="heun:1"} 2
hyperserve_plan_seconds_total{model="a",plan="other"} 3
hyperserve_rows_total{model="a",plan="heun:1",status="converged"} 70
hyperserve_rows_total{model="b",plan="heun:1",status="converged"} 2
hyperserve_rows_total{model="b",plan="heun:1",status="non_finite"} 1
hyperserve_active_generation{model="a",method="heun"} 3
odd{text="a \"b\" {c}, d\\e",more="x"} 1e-3 1700000000
plain 4
"""


class PrometheusTest(unittest.TestCase):
    def test_reads_labels_with_quotes_and_braces(self):
        odd, plain = prometheus.parse(PAGE)[-2:]
        self.assertEqual(odd.labels, {"text": 'a "b" {c}, d\\e', "more": "x"})
        self.assertEqual((odd.value, plain.name, plain.labels, plain.value), (1e-3, "plain", {}, 4))

    def test_refuses_what_is_no_sample(self):
        with self.assertRaisesRegex(ValueError, "no number here"):
            prometheus.parse("no number here\n")

    def test_quantiles_are_linear_within_a_bucket(self):
        buckets = [(1.0, 10), (2.0, 30), (4.0, 40), (math.inf, 40)]
        self.assertAlmostEqual(prometheus.quantile(buckets, 0.125), 0.5)
        self.assertAlmostEqual(prometheus.quantile(buckets, 0.5), 1.5)
        self.assertAlmostEqual(prometheus.quantile(buckets, 0.75), 2.0)
        self.assertAlmostEqual(prometheus.quantile(buckets, 0.9), 3.2)

    def test_quantiles_skip_empty_buckets(self):
        self.assertAlmostEqual(prometheus.quantile([(1.0, 0), (2.0, 0), (4.0, 10), (math.inf, 10)], 0.5), 3.0)
        self.assertAlmostEqual(prometheus.quantile([(1.0, 5), (2.0, 5), (4.0, 10), (math.inf, 10)], 0.5), 1.0)

    def test_beyond_the_last_bound_it_says_that_bound(self):
        self.assertEqual(prometheus.quantile([(1.0, 1), (2.0, 1), (math.inf, 10)], 0.99), 2.0)

    def test_nothing_of_an_empty_histogram(self):
        self.assertIsNone(prometheus.quantile([(1.0, 0), (math.inf, 0)], 0.5))
        self.assertIsNone(prometheus.quantile([], 0.5))

    def test_sums_over_the_labels_that_were_not_asked_for(self):
        samples = prometheus.parse(PAGE)
        self.assertEqual(prometheus.histograms(samples, observe.LATENCY, ("model",))["a",],
                         [(0.001, 50), (0.002, 190), (math.inf, 200)])
        [(model, requests, p50, p99)] = observe.latencies(samples, [])
        self.assertEqual((model, requests), ("a", 200))
        self.assertAlmostEqual(p50, 0.001 + 0.001 * 50 / 140)
        self.assertEqual(p99, 0.002)
        later = PAGE.replace('le="0.002"} 90', 'le="0.002"} 91').replace('"x",le="+Inf"} 100', '"x",le="+Inf"} 101')
        [(*_, requests, p50, _)] = observe.latencies(prometheus.parse(later), samples)
        self.assertEqual((requests, p50), (1, 0.0015))
        self.assertEqual(observe.latencies(samples, samples), [])
        self.assertEqual(observe.plan_means(samples, []), [("a", "heun:1", 4, 0.5), ("a", "other", 2, 1.5)])
        later = PAGE.replace('requests_total{model="a",plan="other"} 2', 'requests_total{model="a",plan="other"} 3')
        later = later.replace('seconds_total{model="a",plan="other"} 3', 'seconds_total{model="a",plan="other"} 3.25')
        self.assertEqual(observe.plan_means(prometheus.parse(later), samples), [("a", "other", 1, 0.25)])
        self.assertEqual(observe.plan_means(samples, samples), [])
        self.assertEqual(observe.rows_by_status(samples), {"converged": 72, "non_finite": 1})
        self.assertEqual(observe.generations(samples), [("a", "heun", 3)])


class TextTest(unittest.TestCase):
    def test_numbers(self):
        for value, wanted in ((0.02712, "0.0271"), (14.23, "14.2"), (1234.4, "1234"), (9.996, "10.00"), (0, "0"),
                              (3.21e-5, "3.21e-5"), (float("nan"), "-"), (None, "-"), (-0.5, "-0.500")):
            self.assertEqual(text.number(value), wanted)
        self.assertEqual([text.macs(v) for v in (12, 33408, 7.16e7, 2.152e9)], ["12.0", "33.4 k", "71.6 M", "2.15 G"])
        self.assertEqual((text.whole(4.0), text.whole(26.25), text.percent(0.987), text.milliseconds(0.0012)),
                         ("4", "26.2", "98.7", "1.20"))

    def test_table_stands_numbers_to_the_right(self):
        self.assertEqual(text.table(["plan", "MACs"], [["euler:1", "33.4 k"], ["rk4:1", "-"]]),
                         "  plan       MACs\n  euler:1  33.4 k\n  rk4:1         -")

    def test_a_teller_is_plain_where_there_is_no_terminal(self):
        stream = io.StringIO()
        teller = text.Teller(stream)
        teller.heading("Act")
        with teller.waiting("something"):
            pass
        teller.table(["a"], [["1"]])
        self.assertEqual(stream.getvalue(), "\n== Act\n  a\n  1\n")


def plan(name, error, macs):
    return {"plan": name, "error_mean": error, "macs": macs}


class JudgeTest(unittest.TestCase):
    CLASSICAL = [plan("dopri5:1e-6", 0, 900), plan("heun:1", 0.2, 20), plan("heun:2", 0.1, 40),
                 plan("midpoint:2", 0.05, 40)]

    def test_a_plan_that_wins(self):
        self.assertEqual(
            judge.verdict(plan("hyper_heun:1", 0.1, 21), self.CLASSICAL),
            "hyper_heun:1 wins: 2.0 times less error than heun:1, the best classical plan within its MACs; "
            "midpoint:2 is as good for 1.9 times the MACs")

    def test_a_plan_that_no_classical_one_reaches(self):
        self.assertTrue(judge.verdict(plan("hyper_heun:1", 0.01, 10), self.CLASSICAL).endswith(
            "costs less than any classical plan here; no classical plan here is as good"))

    def test_a_plan_that_loses_says_so(self):
        self.assertEqual(judge.verdict(plan("hyper_heun:2", 0.1, 42), self.CLASSICAL),
                         "hyper_heun:2 loses: within its MACs, midpoint:2 has 2.0 times less error")

    def test_adaptive_plans_are_no_rivals(self):
        self.assertIn("no classical plan here is as good",
                      judge.verdict(plan("hyper_heun:9", 0.01, 1000), self.CLASSICAL))
        self.assertTrue(judge.verdict(plan("learned:2", 0.1, 21), self.CLASSICAL).startswith("learned:2 wins"))
        self.assertEqual([judge.steps_of(p) for p in ("euler:4", "hyper_euler:2/fast", "dopri5:1e-6", "default")],
                         [4, 2, None, None])

    def test_a_hypersolved_plan_meets_the_rivals_of_its_calibration(self):
        calibrated = [*self.CLASSICAL, plan("hyper_heun:1", 0.1, 25), plan("midpoint:1", 0.15, 20)]
        self.assertEqual(judge.with_rivals(["heun:1", "hyper_heun:1"], calibrated),
                         ["heun:1", "hyper_heun:1", "midpoint:1", "midpoint:2"])
        self.assertEqual(judge.with_rivals(["hyper_heun:2", "heun:1"], calibrated), ["hyper_heun:2", "heun:1"])
        other_tier = [plan("midpoint:1/fast", 0.001, 1), *calibrated]
        self.assertEqual(judge.with_rivals(["hyper_heun:1"], other_tier), ["hyper_heun:1", "midpoint:1", "midpoint:2"])

    def test_percentiles(self):
        self.assertEqual([judge.percentile(list(range(1, 101)), p) for p in (0, 0.5, 0.99, 1)], [1, 50, 99, 100])
        self.assertIsNone(judge.percentile([], 0.5))

    def test_phases(self):
        def request(start, seconds, generation, code="OK", rows_failed=0):
            return {"start": start, "seconds": seconds, "generation": generation, "code": code,
                    "rows_failed": rows_failed}

        requests = [request(0.5, 9, 1), request(1, 0.1, 1), request(2, 0.2, 1), request(3, 0.3, 1),
                    request(3.5, 0.1, 2), request(4, 0.4, 0, code="UNAVAILABLE"), request(5, 0.1, 2, rows_failed=1)]
        before, swap, after = judge.phases(requests, [("before", 1), ("swap", 3), ("after", 4)])
        self.assertEqual((before["requests"], before["failed"], before["generations"], before["p50"], before["max"]),
                         (2, 0, [1], 0.1, 0.2))
        self.assertEqual((swap["requests"], swap["generations"], swap["p99"]), (2, [1, 2], 0.3))
        self.assertEqual((after["requests"], after["failed"], after["generations"], after["p50"]), (2, 2, [], None))
        self.assertAlmostEqual(judge.longest_pause(requests[1:5], 1, 4), 0.9)
        self.assertAlmostEqual(judge.longest_pause(requests[1:5], 1, 6), 2.4)


class PosteriorTest(unittest.TestCase):
    @staticmethod
    def simulate(generator, parameter):
        """The simulator of two moons, as Greenberg, Nonnenmacher and Macke (2019) describe it."""
        x, y = parameter
        angle, radius = math.pi * (generator.random() - 0.5), generator.gauss(0.1, 0.01)
        return (radius * math.cos(angle) + 0.25 - abs(x + y) / math.sqrt(2), radius * math.sin(angle) + (y - x) / math.sqrt(2))

    def test_the_radius_of_a_sample_is_that_of_the_simulator(self):
        generator = random.Random(1)
        points = posterior.truth((0.1, -0.2), 2000, 3)
        found = posterior.describe(points, (0.1, -0.2))
        self.assertAlmostEqual(found["radius"], 0.1, delta=0.001)
        self.assertAlmostEqual(found["deviation"], 0.01, delta=0.001)
        self.assertAlmostEqual(found["upper"], 0.5, delta=0.05)
        parameter = (0.3, -0.4)
        radii = [posterior.implied_radius(parameter, self.simulate(generator, parameter)) for _ in range(2000)]
        self.assertAlmostEqual(math.fsum(radii) / 2000, 0.1, delta=0.001)

    def test_the_true_posterior_is_what_rejection_finds(self):
        """Parameters of the prior whose simulation comes near the observation, beside the exact samples."""
        generator, observed = random.Random(2), (0.0, 0.0)
        near = []
        for _ in range(400_000):
            parameter = (2 * generator.random() - 1, 2 * generator.random() - 1)
            if math.dist(self.simulate(generator, parameter), observed) < 0.03:
                near.append(parameter)
        exact = posterior.truth(observed, 20_000, 4)
        self.assertGreater(len(near), 100)
        for moment in (lambda p: abs(p[0] + p[1]), lambda p: p[1] - p[0], lambda p: (p[1] - p[0]) ** 2):
            mean, wanted = (math.fsum(map(moment, points)) / len(points) for points in (near, exact))
            self.assertAlmostEqual(mean, wanted, delta=0.03)


if __name__ == "__main__":
    unittest.main()
