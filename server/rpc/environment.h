// Everything that the services share: limits, facts, batcher, metrics, clock, registry. The daemon
// owns it, and it outlives the services.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/batching/batcher.h"
#include "server/calls/limits.h"
#include "server/clock/alarm_clock.h"
#include "server/clock/clock.h"
#include "server/metrics/log.h"
#include "server/metrics/metrics.h"
#include "server/registry/registry.h"
#include "server/rpc/ledgers/arrival_ledger.h"
#include "server/rpc/ledgers/call_ledger.h"
#include "server/rpc/ledgers/reply_ledger.h"
#include "server/rpc/model_events.h"

namespace hyperserve {

// The facts that GetServerInfo tells. They are fixed at start.
struct ServerFacts {
  // As ListDevices tells it (core/engine/devices.h).
  struct Device {
    std::string name, description;
    int64_t memory_bytes = 0;
  };
  // As OptionLine (server/options.h), with the values in force.
  struct LimitLine {
    std::string name, value, unit, reason;
  };
  std::string version, commit;
  std::vector<Device> devices;
  std::vector<std::string> engines;  // of the device that serves, in the order of preference
  std::vector<LimitLine> limits;     // the lines of the options page
};

// Thread-safe from the first call on.
class Environment {
 public:
  // Fixed before the first call. The environment owns none of what the pointers name.
  CallLimits limits;
  ServerFacts facts;
  Batcher* batcher = nullptr;
  Metrics* metrics = nullptr;
  const Clock* clock = nullptr;
  Clock::TimePoint started;
  // True: the process holds as much memory as it may. New calls are shed.
  std::atomic<bool> memory_full{false};
  // Calls that are open, but those of Admin.
  CallLedger calls;
  // Requests that are arriving.
  ArrivalLedger arrivals;
  // Replies that are on their way.
  ReplyLedger replies;
  // Calls that were bound to work and have not ended. A shutdown waits for them.
  std::atomic<int64_t> solving_calls{0};
  // True: new calls are answered UNAVAILABLE. Never becomes false again.
  std::atomic<bool> draining{false};
  CrowdedEvents shed_calls;  // for the log
  ModelEvents events;        // for WatchModels
  // The repository. Clients need not know where it is: its path is taken out of messages.
  std::string models_folder;
  // Calls that exist: their answer may still be on its way.
  std::atomic<int64_t> calls_in_flight{0};
  // The limits of calls: what ends those that take too long.
  AlarmClock alarms;

  // Null until the models are loaded and warm, and again at the end of a shutdown. While it is null
  // calls are answered UNAVAILABLE.
  std::shared_ptr<Registry> registry() const {
    const std::lock_guard lock(mutex_);
    return registry_;
  }
  // Waits until nobody holds the registry that was there before, which takes no longer than the
  // start of a call or a callback, and destroys it: never on its own thread, which cannot wait for
  // itself to end. Do not call it on that thread, or while holding the registry.
  void set_registry(std::shared_ptr<Registry> registry) {
    {
      const std::lock_guard lock(mutex_);
      registry_.swap(registry);
    }
    while (registry.use_count() > 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<Registry> registry_;  // guarded by mutex_
};

}  // namespace hyperserve
