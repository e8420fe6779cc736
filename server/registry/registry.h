// The models that are served and the generations of their corrections. Thread-safe.
//
// Pin and List never wait for loading: they copy pointers under a mutex. All slow work (files, the
// gate, warm-up, destroying what was swapped out) runs on the registry's own thread at low
// priority. A swap is one pointer exchange; a caller that has pinned a model keeps what it pinned.
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

// Made by the daemon. No function but Open and the destructor waits for files or an engine.
class Registry {
 public:
  using Event = RegistryEvent;

  // Starts the registry's thread and blocks until it has loaded every model of the repository. A
  // model that does not fit is refused: an event says so, and the others are served. `on_event` is
  // called on the registry's thread. kFailedPrecondition: no model could be loaded. kUnavailable:
  // options.ending said yes. Other codes: the folder cannot be read.
  static absl::StatusOr<std::unique_ptr<Registry>> Open(RegistryOptions options,
                                                        std::function<void(const Event&)> on_event);
  // Answers the waiting candidates kUnavailable and ends the registry's thread, after the step that
  // it is in. Pins stay valid.
  ~Registry();

  std::vector<std::shared_ptr<const ServedModel>> List() const;  // sorted by name
  // The model as it is served now; hold it for as long as a request lasts. kNotFound: there is no
  // such model; the message names those that are loaded.
  absl::StatusOr<std::shared_ptr<const ServedModel>> Pin(std::string_view model) const;

  // What waits is done in this order: rollbacks and models that are unloaded; candidates of Publish
  // and models that are loaded; what is found in the folders.
  // An examination gives way at its next evaluation of f to what goes before it, and begins anew
  // afterwards; the generation of a Publish gets another number then.
  //
  // Queues the files as a candidate and returns. The registry's thread writes them as a new
  // generation, runs the gate and swaps. `done` is called exactly once: on the registry's thread,
  // or before Publish returns where the queue is full (kResourceExhausted).
  //
  // kFailedPrecondition: the candidate is refused, for the reason given, or the repository is
  // read-only. kAborted: parent_generation is not the active one. kNotFound: no such model.
  // kInvalidArgument: the method, a file's name or a size is wrong. kDeadlineExceeded, kCancelled:
  // the patience of the caller ended. kUnavailable: the daemon ends. After the last three nothing
  // is changed, now or later. The registry checks them when it takes the candidate, between the
  // steps of the examination, and last right before the swap.
  void Publish(PublishAsk ask, Patience patience,
               std::function<void(absl::StatusOr<PublishOutcome>)> done);
  // Serves an earlier generation again. Generation 0 means the one that the last swap replaced;
  // after a restart, the highest below the active one that passed. kFailedPrecondition: there is
  // none, or it never passed. kNotFound: no such model, correction or generation. `patience`,
  // `done` and the other codes are as in Publish.
  void Rollback(std::string model, std::string method, int64_t generation, Patience patience,
                std::function<void(absl::StatusOr<PublishOutcome>)> done);

  // Loads the model in the folder of this name: a new one, or a changed one beside the old, which
  // it replaces in one exchange once it is warm; corrections that were made for the old base are
  // set aside. kNotFound: no such folder. kAlreadyExists: it is loaded and unchanged. Else it fails
  // as the reading of the folder does, and changes nothing. `patience` and `done` are as in
  // Publish.
  void LoadModel(std::string model, Patience patience, std::function<void(absl::Status)> done);
  // Takes the model out. Requests that hold it end as usual. It stays out until LoadModel or a
  // restart, whatever the poll of the folder sees. kNotFound: it is not loaded.
  void UnloadModel(std::string model, Patience patience, std::function<void(absl::Status)> done);

 private:
  class Impl;
  explicit Registry(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace hyperserve
