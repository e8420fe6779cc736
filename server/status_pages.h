// What the daemon tells over HTTP: figures that are read when somebody asks, and whether it is
// ready.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "server/metrics/http_server.h"
#include "server/rpc/environment.h"

namespace hyperserve {

// Models that were refused, by name, for /readyz and metrics. Thread-safe.
class RefusedModels {
 public:
  struct Refusal {
    std::string model, reason;
  };
  void Add(Refusal refusal);
  std::vector<Refusal> List() const;

 private:
  mutable std::mutex mutex_;
  std::vector<Refusal> refusals_;  // guarded by mutex_
};

// The page for Prometheus.
HttpReply MetricsPage(Environment& environment, const RefusedModels& refused);
// 200 "ready" or 503 "loading" / "draining"; below it a line for every model and every problem.
HttpReply ReadyPage(const Environment& environment, const RefusedModels& refused);

}  // namespace hyperserve
