// Requests that have begun to arrive and are not there yet. Each may take the memory of the largest
// request, for as long as request_arrival_max_seconds. So only a few may be slow at once; otherwise
// clients that send half a request and wait would fill what all connections share, and gRPC would
// end the calls of others at random.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "server/clock/clock.h"

namespace hyperserve {

// Thread-safe.
class ArrivalLedger {
 public:
  // A request that takes longer is slow: 64 MiB over a gigabit line.
  static constexpr std::chrono::milliseconds kSlow{600};

  // Called before the first call; no limit until then. As many may be slow as fill half of
  // `memory_bytes` with requests of the largest size, at least two.
  void Bound(double memory_bytes, int64_t request_bytes_max) {
    const double requests = memory_bytes / 2 / static_cast<double>(request_bytes_max);
    slow_max_ = std::max<int64_t>(2, static_cast<int64_t>(requests));
  }
  // For messages. Fixed once Bound was called.
  int64_t slow_max() const { return slow_max_; }

  // A request begins to arrive; called on a thread of gRPC. The result is its ticket for Leave.
  // Where more than slow_max are slow, the oldest ones leave the ledger, and their `give_up` is
  // called, on this thread and without a lock.
  int64_t Join(Clock::TimePoint now, std::function<void()> give_up) {
    std::vector<std::function<void()>> given_up;
    int64_t ticket = 0;
    {
      const std::lock_guard lock(mutex_);
      const auto fast = std::ranges::find_if(
          arriving_, [&](const auto& one) { return one.second.since + kSlow > now; });
      for (int64_t slow = std::distance(arriving_.begin(), fast); slow > slow_max_; --slow) {
        given_up.push_back(std::move(arriving_.begin()->second.give_up));
        arriving_.erase(arriving_.begin());
      }
      ticket = next_++;
      arriving_.emplace(ticket, Arrival{.since = now, .give_up = std::move(give_up)});
    }
    for (const auto& one : given_up) one();
    return ticket;
  }

  // It is there, or gone. A second call does nothing.
  void Leave(int64_t ticket) {
    const std::lock_guard lock(mutex_);
    arriving_.erase(ticket);
  }

 private:
  struct Arrival {
    Clock::TimePoint since;
    std::function<void()> give_up;
  };

  int64_t slow_max_ = INT64_MAX;
  std::mutex mutex_;
  int64_t next_ = 1;                     // guarded by mutex_
  std::map<int64_t, Arrival> arriving_;  // guarded by mutex_; by ticket, so the oldest come first
};

}  // namespace hyperserve
