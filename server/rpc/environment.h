// What the services work with. Owned by the daemon, which outlives them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "server/batching/batcher.h"
#include "server/calls/limits.h"
#include "server/clock/clock.h"
#include "server/metrics/metrics.h"
#include "server/registry/registry.h"

namespace hyperserve {

// What GetServerInfo tells, fixed at start.
struct ServerFacts {
  struct Device {
    std::string name, description;
    int64_t memory_bytes = 0;
  };
  struct LimitLine {
    std::string name, value, unit, reason;
  };
  std::string version, commit;
  std::vector<Device> devices;
  std::vector<std::string> engines;
  std::vector<LimitLine> limits;
};

class Environment {
 public:
  // Fixed before the first call.
  CallLimits limits;
  ServerFacts facts;
  Batcher* batcher = nullptr;
  Metrics* metrics = nullptr;
  const Clock* clock = nullptr;
  Clock::TimePoint started;
  // Calls that were let in to solve and have not ended: what a shutdown waits for.
  std::atomic<int64_t> solving_calls{0};
  // No new calls: UNAVAILABLE.
  std::atomic<bool> draining{false};
  // Calls whose answer has not left yet.
  std::atomic<int64_t> calls_in_flight{0};

  // Null until the models are loaded and warm, and again at the very end: calls are UNAVAILABLE.
  std::shared_ptr<Registry> registry() const {
    const std::lock_guard lock(mutex_);
    return registry_;
  }
  // What was there before goes with the last call that holds it.
  void set_registry(std::shared_ptr<Registry> registry) {
    const std::lock_guard lock(mutex_);
    registry_.swap(registry);
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<Registry> registry_;  // guarded by mutex_
};

}  // namespace hyperserve
