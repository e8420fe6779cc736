#include "server/status_pages.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/one_line.h"
#include "core/engine/device_memory.h"
#include "core/engine/devices.h"
#include "core/plan/plan.h"
#include "server/batching/work.h"
#include "server/calls/served_plan.h"
#include "server/metrics/families.h"
#include "server/metrics/metrics.h"
#include "server/registry/registry.h"
#include "server/registry/served_model.h"

namespace hyperserve {
namespace {

constexpr int kUnavailable = 503;

void SetModelFigures(const ServedModel& served, Metrics& metrics) {
  double problems = served.problem.empty() ? 0 : 1;
  for (const CorrectionState& state : served.corrections) {
    if (!state.problem.empty()) ++problems;
    if (!state.active) continue;  // a refused candidate must not become a label
    metrics.Set(Metric::kActiveGeneration, {served.name, PrintMethod(state.method)},
                static_cast<double>(state.active->number));
  }
  metrics.Set(Metric::kModelProblems, {served.name}, problems);
  metrics.Set(Metric::kDefaultPlanReplaced, {served.name},
              DefaultOf(served).reason.empty() ? 0 : 1);
}

void AppendModel(const ServedModel& served, std::string& body) {
  absl::StrAppend(&body, "model ", served.name);
  for (const CorrectionState& state : served.corrections) {
    if (state.active) {
      absl::StrAppend(&body, " ", PrintMethod(state.method), "=", state.active->number);
    }
  }
  absl::StrAppend(&body, "\n");
  if (!served.problem.empty()) {
    absl::StrAppend(&body, "problem ", served.name, ": ", OneLine(served.problem), "\n");
  }
  if (const std::string reason = DefaultOf(served).reason; !reason.empty()) {
    absl::StrAppend(&body, "problem ", served.name, ": ", OneLine(reason), "\n");
  }
  for (const CorrectionState& state : served.corrections) {
    if (state.problem.empty()) continue;
    absl::StrAppend(&body, "problem ", served.name, "/", PrintMethod(state.method), ": ",
                    OneLine(state.problem), "\n");
  }
}

}  // namespace

void RefusedModels::Add(Refusal refusal) {
  const std::lock_guard lock(mutex_);
  refusals_[std::move(refusal.model)] = std::move(refusal.reason);
}

void RefusedModels::Remove(const std::string& model) {
  const std::lock_guard lock(mutex_);
  refusals_.erase(model);
}

std::vector<RefusedModels::Refusal> RefusedModels::List() const {
  const std::lock_guard lock(mutex_);
  std::vector<Refusal> list;
  for (const auto& [model, reason] : refusals_) list.push_back({model, reason});
  return list;
}

void SetMemoryFigures(double memory_max, const std::vector<DeviceInfo>& devices, Metrics& metrics) {
  metrics.Set(Metric::kMemoryMax, {}, memory_max);
  for (const DeviceInfo& one : devices) {
    metrics.Set(Metric::kDeviceMemory, {one.name}, static_cast<double>(one.memory_bytes));
  }
}

void SetMemoryInUse(std::string_view device, Metrics& metrics) {
  metrics.Set(Metric::kDeviceMemoryUsed, {device}, static_cast<double>(MemoryInUse(device)));
}

void ForgetModelFigures(const std::string& model, Metrics& metrics) {
  for (const Metric figure :
       {Metric::kActiveGeneration, Metric::kModelProblems, Metric::kDefaultPlanReplaced}) {
    metrics.SetAll(figure, model, 0);
  }
}

HttpReply MetricsPage(Environment& environment, const RefusedModels& refused) {
  Metrics& metrics = *environment.metrics;
  const QueueDepth depth = environment.batcher->depth();
  metrics.Set(Metric::kQueueRequests, {}, static_cast<double>(depth.requests));
  metrics.Set(Metric::kQueueRows, {}, static_cast<double>(depth.rows));
  metrics.Set(Metric::kQueueBytes, {}, static_cast<double>(depth.bytes));
  metrics.Set(Metric::kPendingMacs, {}, static_cast<double>(depth.macs));
  metrics.Set(Metric::kLiveQueues, {}, static_cast<double>(depth.queues));
  metrics.Set(Metric::kUnreadReplies, {}, static_cast<double>(environment.replies.bytes()));
  const std::shared_ptr<Registry> registry = environment.registry();
  metrics.Set(Metric::kReady, {}, registry && !environment.draining ? 1 : 0);
  if (registry) {
    for (const auto& served : registry->List()) SetModelFigures(*served, metrics);
  }
  for (const RefusedModels::Refusal& refusal : refused.List()) {
    metrics.Set(Metric::kModelProblems, {refusal.model}, 1);
  }
  return {.body = metrics.Text(), .content_type = "text/plain; version=0.0.4; charset=utf-8"};
}

HttpReply ReadyPage(const Environment& environment, const RefusedModels& refused) {
  const std::shared_ptr<Registry> registry = environment.registry();
  HttpReply reply;
  if (environment.draining) {
    reply = {.status = kUnavailable, .body = "draining\n"};
  } else if (!registry) {
    reply = {.status = kUnavailable, .body = "loading\n"};
  } else {
    reply.body = "ready\n";
  }
  if (registry) {
    for (const auto& served : registry->List()) AppendModel(*served, reply.body);
  }
  for (const RefusedModels::Refusal& refusal : refused.List()) {
    absl::StrAppend(&reply.body, "problem ", OneLine(refusal.model), ": ", OneLine(refusal.reason),
                    "\n");
  }
  return reply;
}

}  // namespace hyperserve
