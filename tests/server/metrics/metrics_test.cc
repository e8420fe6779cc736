#include "server/metrics/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>
#include <vector>

#include "server/metrics/families.h"

namespace hyperserve {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Families, FollowTheNamingRules) {
  std::set<std::string_view> names;
  for (const MetricFamily& family : kFamilies) {
    SCOPED_TRACE(family.name);
    EXPECT_TRUE(names.insert(family.name).second);
    EXPECT_TRUE(family.name.starts_with("hyperserve_") || family.name.starts_with("process_"));
    EXPECT_EQ(family.name.ends_with("_total"), family.type == MetricType::kCounter);
    EXPECT_FALSE(family.help.empty());
    EXPECT_EQ(family.buckets.empty(), family.type != MetricType::kHistogram);
    EXPECT_TRUE(std::is_sorted(family.buckets.begin(), family.buckets.end()));
    if (family.unit == "seconds" || family.unit == "bytes") {
      EXPECT_THAT(std::string(family.name), HasSubstr(std::string("_") + std::string(family.unit)));
    }
  }
}

TEST(Metrics, TextHoldsWhatWasRecorded) {
  Metrics metrics;
  metrics.Observe(Metric::kRequestDuration, {"fashion"}, 0.0015);
  metrics.Increment(Metric::kFieldEvaluations, {"fashion", "euler:4"}, 4);
  metrics.Increment(Metric::kFieldEvaluations, {"fashion", "euler:4"}, 8);
  metrics.Set(Metric::kActiveGeneration, {"fashion", "euler"}, 3);
  metrics.Change(Metric::kRequestsInFlight, {"Classify"}, 2);
  metrics.Change(Metric::kRequestsInFlight, {"Classify"}, -1);
  const std::string text = metrics.Text();
  EXPECT_THAT(text, HasSubstr("hyperserve_request_duration_seconds_bucket{model=\"fashion\","
                              "le=\"0.00128\"} 0"));
  EXPECT_THAT(text, HasSubstr("model=\"fashion\",le=\"0.00192\"} 1"));
  EXPECT_THAT(text, HasSubstr("hyperserve_field_evaluations_total{model=\"fashion\",plan="
                              "\"euler:4\"} 12"));
  EXPECT_THAT(text,
              HasSubstr("hyperserve_active_generation{method=\"euler\",model=\"fashion\"} 3"));
  EXPECT_THAT(text, HasSubstr("hyperserve_requests_in_flight{call=\"Classify\"} 1"));
}

TEST(Metrics, SetAllSetsTheSeriesOfOneModel) {
  Metrics metrics;
  metrics.Set(Metric::kActiveGeneration, {"fashion", "euler"}, 3);
  metrics.Set(Metric::kActiveGeneration, {"fashion", "learned"}, 4);
  metrics.Set(Metric::kActiveGeneration, {"rings", "euler"}, 5);
  metrics.SetAll(Metric::kActiveGeneration, "fashion", 0);
  metrics.SetAll(Metric::kActiveGeneration, "nobody", 0);
  const std::string text = metrics.Text();
  const auto line = [](const std::string& model, const std::string& method, int value) {
    return "hyperserve_active_generation{method=\"" + method + "\",model=\"" + model + "\"} " +
           std::to_string(value);
  };
  EXPECT_THAT(text, HasSubstr(line("fashion", "euler", 0)));
  EXPECT_THAT(text, HasSubstr(line("fashion", "learned", 0)));
  EXPECT_THAT(text, HasSubstr(line("rings", "euler", 5)));
  EXPECT_THAT(text, Not(HasSubstr("nobody")));
}

TEST(Metrics, DurationsAreToldByAFactorOf1_5) {
  EXPECT_EQ(kDurationBuckets.front(), 5e-5);
  EXPECT_EQ(kDurationBuckets.back(), 60);
  for (size_t i = 1; i < kDurationBuckets.size(); ++i) {
    EXPECT_LT(kDurationBuckets[i], 1.51 * kDurationBuckets[i - 1]) << kDurationBuckets[i];
  }
}

TEST(Metrics, AFewPlansOfEachModelHaveALabelOfTheirOwn) {
  Metrics metrics;
  const auto label = [&](const std::string& model, const std::string& plan) {
    return metrics.LabelOf({.model = model, .plan = plan});
  };
  for (size_t i = 0; i < Metrics::kPlansMax; ++i) {
    const std::string plan = "euler:" + std::to_string(i);
    EXPECT_EQ(label("rings", plan), plan);
  }
  EXPECT_EQ(label("rings", "rk4:1"), "other");
  EXPECT_EQ(label("rings", "euler:3"), "euler:3") << "as before";
  EXPECT_EQ(label("fashion", "rk4:1"), "rk4:1") << "each model has its own";
  EXPECT_EQ(metrics.LabelOf({.model = "rings", .plan = "learned:3", .is_default = true}),
            "learned:3");
}

// All series that three models can have, with names as long as those of the shipped ones: every
// call, plan, code that a client can cause, and status. Prometheus reads this every few seconds.
TEST(Metrics, ThePageStaysSmall) {
  Metrics metrics;
  for (const std::string model : {"checkerboard", "pinwheel", "two_moons"}) {
    for (const char* call : {"Sample", "SampleStream", "LogProb", "LogProbGradient", "Solve",
                             "SolveVjp", "SolveJvp"}) {
      for (const char* code : {"OK", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED",
                               "CANCELLED", "FAILED_PRECONDITION", "UNIMPLEMENTED"}) {
        metrics.Increment(Metric::kRequests, {model, call, code});
      }
      metrics.Increment(Metric::kRequestSeconds, {model, call}, 1.2345678901);
    }
    for (int i = 0; i < 100; ++i) {
      const std::string plan =
          metrics.LabelOf({.model = model, .plan = "hyper_midpoint:" + std::to_string(i)});
      for (const char* status : {"converged", "non_finite"}) {
        metrics.Increment(Metric::kRows, {model, plan, status}, 12345);
      }
      for (const Metric metric :
           {Metric::kFieldEvaluations, Metric::kCorrectionEvaluations, Metric::kMacs,
            Metric::kRowsSolvedAgain, Metric::kPlanRequests, Metric::kPlanSeconds}) {
        metrics.Increment(metric, {model, plan}, 1234567.89);
      }
    }
    for (const Metric metric :
         {Metric::kRequestDuration, Metric::kQueueDuration, Metric::kSolveDuration,
          Metric::kRequestRows, Metric::kBatchRows, Metric::kBatchRequests, Metric::kBatchTurns}) {
      metrics.Observe(metric, {model}, 1.2345678901);
    }
  }
  EXPECT_LT(metrics.Text().size(), 95'000u) << "and some kilobytes of series without a model";
}

TEST(Metrics, ProcessFiguresAreThere) {
  Metrics metrics;
  const std::string text = metrics.Text();
  const auto value = [&](const std::string& name) {
    const size_t at = text.find("\n" + name + " ");
    return at == std::string::npos ? -1.0
                                   : std::strtod(text.c_str() + at + name.size() + 2, nullptr);
  };
  EXPECT_GT(value("process_resident_memory_bytes"), 1e5);
  EXPECT_GT(value("process_virtual_memory_bytes"), value("process_resident_memory_bytes"));
  EXPECT_GE(value("process_open_fds"), 3);
  EXPECT_NEAR(value("process_start_time_seconds"), static_cast<double>(time(nullptr)), 600);
}

TEST(Metrics, ManyThreadsLoseNothing) {
  Metrics metrics;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&metrics, i] {
      for (int j = 0; j < 500; ++j) {
        metrics.Increment(Metric::kRows, {"m", i % 2 == 0 ? "a" : "b", "converged"});
        metrics.Observe(Metric::kBatchRows, {"m"}, j);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string text = metrics.Text();
  EXPECT_THAT(text, HasSubstr("plan=\"a\",status=\"converged\"} 1000"));
  EXPECT_THAT(text, HasSubstr("hyperserve_batch_rows_count{model=\"m\"} 2000"));
}

std::string FindPromtool() {
  // NOLINTBEGIN(concurrency-mt-unsafe): the only thread
  if (const char* given = std::getenv("PROMTOOL")) return given;
  return std::system("command -v promtool >/dev/null 2>&1") == 0 ? "promtool" : "";
  // NOLINTEND(concurrency-mt-unsafe)
}

TEST(Metrics, PromtoolFindsNothing) {
  const std::string promtool = FindPromtool();
  if (promtool.empty()) GTEST_SKIP() << "promtool is neither in PROMTOOL nor in PATH";
  Metrics metrics;
  for (const MetricFamily& family : kFamilies) {
    const auto count = [&] {
      size_t n = 0;
      while (n < family.labels.size() && !family.labels[n].empty()) ++n;
      return n;
    }();
    const auto record = [&](Metrics::LabelValues labels) {
      switch (family.type) {
        case MetricType::kCounter:
          metrics.Increment(family.metric, labels);
          break;
        case MetricType::kGauge:
          metrics.Set(family.metric, labels, 1);
          break;
        case MetricType::kHistogram:
          metrics.Observe(family.metric, labels, 0.5);
          break;
      }
    };
    if (count == 0) record({});
    if (count == 1) record({"a"});
    if (count == 2) record({"a", "b"});
    if (count == 3) record({"a", "b", "c"});
    if (count == 4) record({"a", "b", "c", "d"});
  }
  const auto folder = std::filesystem::path(testing::TempDir());
  std::ofstream(folder / "scrape.txt") << metrics.Text();
  const std::string command = promtool + " check metrics < " + (folder / "scrape.txt").string() +
                              " > " + (folder / "lint.txt").string() + " 2>&1";
  const int rc = std::system(command.c_str());  // NOLINT(concurrency-mt-unsafe)
  std::ifstream lint(folder / "lint.txt");
  const std::string words((std::istreambuf_iterator<char>(lint)), std::istreambuf_iterator<char>());
  EXPECT_EQ(rc, 0) << words;
  EXPECT_EQ(words, "");
}

}  // namespace
}  // namespace hyperserve
