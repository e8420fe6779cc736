// The pages /metrics and /readyz. Both are made anew for each request. Thread-safe: the threads of
// the HTTP server call them at the same time. They never fail and wait for no solve and no file.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "core/engine/devices.h"
#include "server/metrics/metrics.h"
#include "server/net/http_request.h"
#include "server/rpc/environment.h"

namespace hyperserve {

// The models that could not be loaded and are not served. Thread-safe: the registry's thread
// changes them, pages read.
class RefusedModels {
 public:
  // Both texts come from files and are not checked: escape them before they are printed.
  struct Refusal {
    std::string model, reason;
  };
  void Add(Refusal refusal);  // replaces an earlier one of the model
  void Remove(const std::string& model);
  // A copy, sorted by model.
  std::vector<Refusal> List() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::string> refusals_;  // reason by model; guarded by mutex_
};

// Sets the gauges of memory that never change, in bytes. Called once, at start.
void SetMemoryFigures(double memory_max, const std::vector<DeviceInfo>& devices, Metrics& metrics);
// Sets the gauge of the memory in use on a device that serves.
void SetMemoryInUse(std::string_view device, Metrics& metrics);

// Sets the gauges of a model that is no longer served to 0. Called by the registry's thread.
void ForgetModelFigures(const std::string& model, Metrics& metrics);

// The page for Prometheus. It first sets the gauges that nobody updates: queues, generations,
// problems, readiness.
HttpReply MetricsPage(Environment& environment, const RefusedModels& refused);
// 200 "ready", 503 "loading" or 503 "draining". Below it one line for each model with its active
// generations, and one for each problem.
HttpReply ReadyPage(const Environment& environment, const RefusedModels& refused);

}  // namespace hyperserve
