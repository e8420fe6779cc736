// What the services work with. Owned by the daemon, which outlives them.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "server/batching/batcher.h"
#include "server/clock/clock.h"
#include "server/metrics/metrics.h"
#include "server/registry/registry.h"
#include "server/rpc/limits.h"

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

struct Environment {
  // Fixed before the first call.
  CallLimits limits;
  ServerFacts facts;
  Batcher* batcher = nullptr;
  Metrics* metrics = nullptr;
  const Clock* clock = nullptr;
  Clock::TimePoint started;
  // Null until the models are loaded and warm: calls are UNAVAILABLE.
  std::atomic<Registry*> registry{nullptr};
  // No new calls: UNAVAILABLE.
  std::atomic<bool> draining{false};
};

}  // namespace hyperserve
