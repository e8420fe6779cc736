#include "server/metrics/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <cassert>
#include <map>
#include <mutex>
#include <set>
#include <variant>
#include <vector>

#include "server/metrics/process_figures.h"

namespace hyperserve {
namespace {

using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;
using AnyFamily = std::variant<prometheus::Family<Counter>*, prometheus::Family<Gauge>*,
                               prometheus::Family<Histogram>*>;

const MetricFamily& InfoOf(Metric metric) { return kFamilies[static_cast<size_t>(metric)]; }

prometheus::Labels MakeLabels(Metric metric, Metrics::LabelValues values) {
  const MetricFamily& info = InfoOf(metric);
  prometheus::Labels labels;
  size_t i = 0;
  for (const std::string_view value : values) {
    assert(i < info.labels.size() && !info.labels[i].empty());
    labels.emplace(info.labels[i++], value);
  }
  assert(i == info.labels.size() || info.labels[i].empty());
  return labels;
}

AnyFamily Register(const MetricFamily& info, prometheus::Registry& registry) {
  const std::string name(info.name), help(info.help);
  switch (info.type) {
    case MetricType::kCounter:
      return &prometheus::BuildCounter().Name(name).Help(help).Register(registry);
    case MetricType::kGauge:
      return &prometheus::BuildGauge().Name(name).Help(help).Register(registry);
    case MetricType::kHistogram:
      break;
  }
  return &prometheus::BuildHistogram().Name(name).Help(help).Register(registry);
}

}  // namespace

struct Metrics::Families {
  prometheus::Registry registry;
  std::vector<AnyFamily> families;
  std::mutex cpu_mutex;
  double cpu_seconds = 0;  // counted so far; guarded by cpu_mutex
  std::mutex plans_mutex;
  // Plans with a label of their own, by model; guarded by plans_mutex.
  std::map<std::string, std::set<std::string, std::less<>>, std::less<>> plans;

  template <class M>
  prometheus::Family<M>& Get(Metric metric) {
    return *std::get<prometheus::Family<M>*>(families[static_cast<size_t>(metric)]);
  }
};

Metrics::Metrics() : families_(std::make_unique<Families>()) {
  for (const MetricFamily& info : kFamilies) {
    families_->families.push_back(Register(info, families_->registry));
  }
}

Metrics::~Metrics() = default;

void Metrics::Observe(Metric histogram, LabelValues labels, double value) {
  const std::span<const double> buckets = InfoOf(histogram).buckets;
  families_->Get<Histogram>(histogram)
      .Add(MakeLabels(histogram, labels),
           Histogram::BucketBoundaries(buckets.begin(), buckets.end()))
      .Observe(value);
}

void Metrics::Increment(Metric counter, LabelValues labels, double by) {
  families_->Get<Counter>(counter).Add(MakeLabels(counter, labels)).Increment(by);
}

void Metrics::Change(Metric gauge, LabelValues labels, double by) {
  families_->Get<Gauge>(gauge).Add(MakeLabels(gauge, labels)).Increment(by);
}

void Metrics::Set(Metric gauge, LabelValues labels, double value) {
  families_->Get<Gauge>(gauge).Add(MakeLabels(gauge, labels)).Set(value);
}

void Metrics::SetAll(Metric gauge, std::string_view first, double value) {
  prometheus::Family<Gauge>& family = families_->Get<Gauge>(gauge);
  const std::string name(InfoOf(gauge).labels[0]);
  for (const prometheus::MetricFamily& collected : family.Collect()) {
    for (const prometheus::ClientMetric& series : collected.metric) {
      prometheus::Labels labels;
      for (const auto& label : series.label) labels.emplace(label.name, label.value);
      if (labels[name] == first) family.Add(labels).Set(value);
    }
  }
}

std::string Metrics::LabelOf(const CountedPlan& plan) {
  if (plan.is_default) return std::string(plan.plan);
  const std::lock_guard lock(families_->plans_mutex);
  std::set<std::string, std::less<>>& own = families_->plans[std::string(plan.model)];
  if (own.contains(plan.plan)) return std::string(plan.plan);
  if (own.size() >= kPlansMax) return "other";
  return *own.emplace(plan.plan).first;
}

void Metrics::SetProcessFigures() {
  const ProcessFigures figures = ReadProcessFigures();
  {
    const std::lock_guard lock(families_->cpu_mutex);
    const double more = figures.cpu_seconds - families_->cpu_seconds;
    if (more > 0) {
      Increment(Metric::kProcessCpu, {}, more);
      families_->cpu_seconds = figures.cpu_seconds;
    }
  }
  Set(Metric::kProcessResidentMemory, {}, figures.resident_bytes);
  Set(Metric::kProcessVirtualMemory, {}, figures.virtual_bytes);
  Set(Metric::kProcessOpenFds, {}, figures.open_fds);
  Set(Metric::kProcessStartTime, {}, figures.start_time_seconds);
}

std::string Metrics::Text() {
  SetProcessFigures();
  return prometheus::TextSerializer().Serialize(families_->registry.Collect());
}

}  // namespace hyperserve
