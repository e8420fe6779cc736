// The daemon: joins registry, batcher, services and pages, and takes them apart in order.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "server/options.h"

namespace hyperserve {

class Daemon {
 public:
  // Listens, loads the models, warms them; ready when this returns. Calls that come before are
  // UNAVAILABLE. Fails in words where an address is taken, the device is not there, or not one
  // model could be loaded.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(const Options& options);
  ~Daemon();

  // Health NOT_SERVING and no new calls; what is in flight is finished within drain_seconds, the
  // rest answered UNAVAILABLE; then all is closed. A candidate that is being examined is answered
  // UNAVAILABLE as well, and examined again at the next start.
  void Shutdown();

 private:
  struct Parts;
  explicit Daemon(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace hyperserve
