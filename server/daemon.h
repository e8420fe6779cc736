// The daemon: builds registry, batcher, services and pages, and takes them apart in order. Used by
// main alone, from one thread.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "server/options.h"

namespace hyperserve {

// Handles no signal: main does, and calls Shutdown.
class Daemon {
 public:
  // Listens, then loads and warms the models. The daemon is ready when Start returns; it answers
  // earlier calls with UNAVAILABLE, and /readyz says "loading". Blocks as long as loading takes.
  // Precondition: `options` passed ValidateOptions.
  //
  // kInvalidArgument: the device is not there. kUnavailable: an address is taken, or `ending` said
  // yes. kFailedPrecondition: no model could be loaded. Other codes come from the file system. A
  // Start that fails leaves nothing open.
  //
  // `ending` says whether the process was asked to end; it is thread-safe, and the registry's
  // thread asks it. Once it says yes, loading and examining stop at their next step: candidates are
  // answered UNAVAILABLE, and nothing of them is kept.
  //
  // `fault` is called, on a thread of the daemon, when it finds that one of its ports no longer
  // answers. The owner should then end the process: nothing mends that.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(const Options& options,
                                                       std::function<bool()> ending,
                                                       std::function<void()> fault);
  ~Daemon();  // calls Shutdown

  // Sets health to NOT_SERVING and refuses new calls. Waits up to drain_seconds for the calls that
  // were let in, answers the others UNAVAILABLE, ends the registry and closes the gRPC ports. The
  // pages over HTTP say "draining" until the destructor has run. A second call does nothing.
  void Shutdown();

 private:
  struct Parts;
  explicit Daemon(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace hyperserve
