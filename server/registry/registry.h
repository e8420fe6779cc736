// The models that are served and the generations of their corrections (DESIGN.md section 7).
// Thread-safe.
//
// Reading never waits for loading: a Pin is a shared_ptr copied under a mutex. Everything slow
// (files, the gate, warm-up, destruction of what nobody pins any more) happens on the registry's
// own thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/repository/generation_files.h"
#include "server/clock/patience.h"
#include "server/registry/gate_decision.h"
#include "server/registry/registry_options.h"
#include "server/registry/served_model.h"

namespace hyperserve {

class Registry {
 public:
  using Event = RegistryEvent;

  // Loads every model of the repository (blocking); a model that does not fit is refused by an
  // event, the others are served. Fails where the folder cannot be read or not one model could be
  // loaded; kUnavailable where the daemon is to end first.
  static absl::StatusOr<std::unique_ptr<Registry>> Open(RegistryOptions options,
                                                        std::function<void(const Event&)> on_event);
  ~Registry();  // ends the registry's thread; pins stay valid

  std::vector<std::shared_ptr<const ServedModel>> List() const;  // sorted by name
  // kNotFound names the model and the ones that are there.
  absl::StatusOr<std::shared_ptr<const ServedModel>> Pin(std::string_view model) const;

  // Writes the files as a new generation, runs the gate, swaps. `done` is called exactly once: on
  // the registry's thread, or before Publish returns where the queue is full (kResourceExhausted).
  // kFailedPrecondition with the reason where the candidate is refused, kAborted where
  // parent_generation is not active (0: there was none), kNotFound, kInvalidArgument (unknown
  // method or file names, sizes). Where the caller's patience ends (kDeadlineExceeded, kCancelled)
  // or the daemon (kUnavailable) before the swap, nothing is changed, now or later; it is looked at
  // at dequeue and between the steps of the examination, for the last time right before the swap.
  void Publish(std::string model, std::string method, GenerationFiles files,
               std::optional<int64_t> parent_generation, Patience patience,
               std::function<void(absl::StatusOr<PublishOutcome>)> done);
  // generation 0: the previous one, which is the one that the last swap replaced (after a restart:
  // the highest below the active one that passed). kFailedPrecondition where there is none or it
  // never passed. `patience` and `done` as in Publish.
  void Rollback(std::string model, std::string method, int64_t generation, Patience patience,
                std::function<void(absl::StatusOr<PublishOutcome>)> done);

 private:
  class Impl;
  explicit Registry(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace hyperserve
