// Calls that are open, by client. Each takes memory, of ours and of gRPC, until it ends, and some
// end only when their client wants: it may watch for hours, or ask and read no answer. So there is
// a bound, and one client has at most half of it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace hyperserve {

// Thread-safe. Never waits: a call that is one too many is refused, not queued.
class CallLedger {
 public:
  // What an open call takes: 13 KB where it does nothing (gRPC 1.51), and its answer.
  static constexpr double kBytesOfCall = 16 << 10;

  // Called before the first call; no bound until then.
  void Bound(double memory_bytes) {
    calls_max_ = std::max<int64_t>(kLeast, static_cast<int64_t>(memory_bytes / kBytesOfCall));
  }

  // A call of this client begins; it counts until Leave. kResourceExhausted: it is one too many,
  // does not count, and must end at once. `peer` is the client's address without its port.
  absl::Status Join(const std::string& peer) {
    const std::lock_guard lock(mutex_);
    const auto own = of_peer_.find(peer);
    const int64_t calls_of_peer = own == of_peer_.end() ? 0 : own->second;
    if (open_ >= calls_max_ || calls_of_peer >= calls_max_ / 2) {
      return absl::ResourceExhaustedError(absl::StrCat(
          calls_of_peer, " calls of this client are open and ", open_, " in all; the bounds are ",
          calls_max_ / 2, " and ", calls_max_, ", by memory_max; end some, then try again"));
    }
    ++open_;
    ++of_peer_[peer];
    return absl::OkStatus();
  }

  // A call that joined has ended.
  void Leave(const std::string& peer) {
    const std::lock_guard lock(mutex_);
    --open_;
    const auto own = of_peer_.find(peer);
    if (--own->second == 0) of_peer_.erase(own);
  }

 private:
  static constexpr int64_t kLeast = 16;  // for Admin and probes, however little memory there is

  int64_t calls_max_ = INT64_MAX;
  std::mutex mutex_;
  int64_t open_ = 0;                        // guarded by mutex_
  std::map<std::string, int64_t> of_peer_;  // guarded by mutex_; counts above 0
};

}  // namespace hyperserve
