// The daemon: joins registry, batcher, services and pages, and takes them apart in order.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "server/options.h"

namespace hyperserve {

class Daemon {
 public:
  // Listens, loads the models, warms them; ready when this returns. Calls that come before are
  // UNAVAILABLE. Fails in words where an address is taken, the device is not there, or not one
  // model could be loaded. From the moment on where `ending` says yes (thread-safe), loading and
  // examining stop at their next step: Start fails with kUnavailable, candidates are answered
  // UNAVAILABLE and nothing of them stays.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(const Options& options,
                                                       std::function<bool()> ending);
  ~Daemon();

  // Health NOT_SERVING and no new calls; what is in flight is finished within drain_seconds, the
  // rest answered UNAVAILABLE; then all is closed.
  void Shutdown();

 private:
  struct Parts;
  explicit Daemon(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace hyperserve
