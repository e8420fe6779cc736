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
  metrics.Observe(Metric::kRequestDuration, {"fashion", "Classify", "euler:4"}, 0.0015);
  metrics.Increment(Metric::kFieldEvaluations, {"fashion", "euler:4"}, 4);
  metrics.Increment(Metric::kFieldEvaluations, {"fashion", "euler:4"}, 8);
  metrics.Set(Metric::kActiveGeneration, {"fashion", "euler"}, 3);
  metrics.Change(Metric::kRequestsInFlight, {"Classify"}, 2);
  metrics.Change(Metric::kRequestsInFlight, {"Classify"}, -1);
  const std::string text = metrics.Text();
  EXPECT_THAT(text, HasSubstr("hyperserve_request_duration_seconds_bucket{call=\"Classify\",model="
                              "\"fashion\",plan=\"euler:4\",le=\"0.00128\"} 0"));
  EXPECT_THAT(text, HasSubstr("plan=\"euler:4\",le=\"0.00192\"} 1"));
  EXPECT_THAT(text, HasSubstr("hyperserve_field_evaluations_total{model=\"fashion\",plan="
                              "\"euler:4\"} 12"));
  EXPECT_THAT(text,
              HasSubstr("hyperserve_active_generation{method=\"euler\",model=\"fashion\"} 3"));
  EXPECT_THAT(text, HasSubstr("hyperserve_requests_in_flight{call=\"Classify\"} 1"));
}

TEST(Metrics, DurationsAreToldByAFactorOf1_5) {
  EXPECT_EQ(kDurationBuckets.front(), 5e-5);
  EXPECT_EQ(kDurationBuckets.back(), 60);
  for (size_t i = 1; i < kDurationBuckets.size(); ++i) {
    EXPECT_LT(kDurationBuckets[i], 1.51 * kDurationBuckets[i - 1]) << kDurationBuckets[i];
  }
}

// Three models, each with calls and plans as in use: Prometheus reads this every few seconds.
TEST(Metrics, ThePageStaysSmall) {
  Metrics metrics;
  for (const std::string model : {"fashion", "pinwheel", "rings"}) {
    for (const std::string call : {"Sample", "LogProb", "Solve"}) {
      for (const char* code : {"OK", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED"}) {
        metrics.Increment(Metric::kRequests, {model, call, "hyper_heun:1", code});
      }
    }
    for (const std::string plan : {"hyper_heun:1", "rk4:other", "dopri5:1e-5"}) {
      metrics.Observe(Metric::kRequestDuration, {model, "Sample", plan}, 0.1);
      for (const char* status : {"converged", "step_limit", "non_finite"}) {
        metrics.Increment(Metric::kRows, {model, plan, status});
      }
      for (const Metric metric : {Metric::kFieldEvaluations, Metric::kCorrectionEvaluations,
                                  Metric::kMacs, Metric::kRowsSolvedAgain}) {
        metrics.Increment(metric, {model, plan});
      }
    }
    for (const Metric metric :
         {Metric::kQueueDuration, Metric::kSolveDuration, Metric::kRequestRows, Metric::kBatchRows,
          Metric::kBatchRequests, Metric::kBatchTurns}) {
      metrics.Observe(metric, {model}, 1);
    }
  }
  EXPECT_LT(metrics.Text().size(), 100'000u);
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
