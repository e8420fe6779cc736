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
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/net/model.h"
#include "core/model/repository/repository.h"
#include "server/clock/patience.h"

namespace hyperserve {

// One immutable version of a correction, as it is served.
struct Generation {
  int64_t number = 0;
  std::shared_ptr<const Hypersolver> correction;
  Calibration calibration;  // of the plans that use it
};

// One (model, method): what is active and what rollback would return to.
struct CorrectionState {
  MethodChoice method;
  std::shared_ptr<const Generation> active;    // null: none is served
  std::shared_ptr<const Generation> previous;  // null: none
  std::string problem;                         // why what is in the folder is not used; empty: fine
};

// A consistent picture of one model, immutable: a request that holds it keeps its model and
// generation alive.
struct ServedModel {
  std::string name;
  std::shared_ptr<const Model> model;
  std::string spec_json;  // model.json as on disk
  Calibration calibration;
  std::vector<CorrectionState> corrections;
  std::string problem;  // calibration of another base, and the like; empty: fine

  const CorrectionState* Find(const MethodChoice& method) const;
};

struct GateMeasurement {
  int steps = 0;
  double candidate_error = 0;
  std::optional<double> active_error;
  double base_error = 0;
};

struct PublishOutcome {
  int64_t generation = 0;
  int64_t previous_generation = 0;
  std::vector<GateMeasurement> gate;
  double seconds = 0;
};

// The pure decision of the gate: does the candidate pass, and why not, in words with the numbers.
// `margin`: 0.02 means at most 2 % worse than the active generation (differences below the
// reference's own tolerance of 1e-6 do not count). Passes where at every K the candidate beats the
// base.
Verdict DecideGate(const std::vector<GateMeasurement>& measurements, double margin);

// What is measured for a decision. Probes: the candidate's and, where it differs, the active one's;
// rows are model inputs before preprocessing (flows: z at the start of the solve).
struct GateInput {
  std::shared_ptr<const Model> model;
  std::shared_ptr<const Hypersolver> candidate;
  std::shared_ptr<const Hypersolver> active;  // null: none is served
  std::vector<HostTensor> probes;
};
// One measurement for every K that the candidate declares. A row that does not converge has an
// infinite error.
using GateMeasure =
    std::function<absl::StatusOr<std::vector<GateMeasurement>>(const GateInput& input)>;

struct RegistryOptions {
  std::string repository;  // the folder
  bool read_only = false;  // publish and rollback are refused with kFailedPrecondition
  double gate_margin = 0.02;
  double poll_seconds = 1.0;   // how often the folder is looked at for new generations; 0: never
  std::string device = "cpu";  // where the gate measures
  int64_t publish_queue_limit = 8;  // candidates waiting; more are kResourceExhausted
  // Warms what will be served on every serving device, before the swap; called on the registry's
  // thread. `interrupted` is thread-safe: where it says yes, nobody waits for it any more.
  std::function<absl::Status(const std::shared_ptr<const Model>&,
                             const std::shared_ptr<const Hypersolver>&,
                             const std::function<bool()>& interrupted)>
      warm;
  // Empty: on a readable engine of `device`. Tests put their own here.
  GateMeasure measure;
  // True from the moment on where the daemon is to end: loading and examining stop at their next
  // step with kUnavailable. Thread-safe; may be empty.
  std::function<bool()> ending;
};

class Registry {
 public:
  // What happened, for logs and metrics. Called on the registry's thread, outside its locks.
  struct Event {
    enum class Kind { kModelLoaded, kModelRefused, kPublished, kRefused, kRolledBack };
    Kind kind;
    std::string model;
    std::string method;  // empty for model events
    int64_t generation = 0;
    std::string source;  // "start", "rpc", "folder"
    std::string detail;  // the verdict or the error, in words
  };

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

// `hyperserve --check FOLDER`: reads one model folder (or a repository of them) and says everything
// that does not fit, one line each, file first. Empty: all fits.
std::vector<std::string> CheckModelFolder(const std::string& folder);

}  // namespace hyperserve
