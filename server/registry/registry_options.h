// The options of the registry and the events that it reports. The defaults are on the daemon's page
// of options (server/options.h); every number here is set by the caller.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "core/engine/device_runtime.h"
#include "core/model/net/model.h"
#include "core/model/repository/calibration.h"
#include "core/model/repository/generation_files.h"
#include "server/registry/gate_decision.h"

namespace hyperserve {

// The model or the generation that will be served next. Valid during the call that gets it.
struct WarmUpSubject {
  std::shared_ptr<const Model> model;
  std::shared_ptr<const Hypersolver> correction;  // null: the model's classical plans
  // Of the model, or of the correction's generation. Its times are those of the file until the call
  // that warms replaces them by those of its device.
  Calibration* calibration = nullptr;
};

// A candidate by call.
struct PublishAsk {
  std::string model;
  std::string method;  // as in plans
  GenerationFiles files;
  // The generation that it was made to follow; 0: none; nullopt: not compared.
  std::optional<int64_t> parent_generation = {};
  bool may_narrow = false;  // as in GateInput
};

// Copied by Open. What pointers and functions refer to must outlive the registry.
struct RegistryOptions {
  std::string repository;                 // the folder
  std::set<std::string> allow_code = {};  // models whose field.pt2 is run
  bool read_only = false;                 // refuses Publish and Rollback, and writes no file
  double gate_margin = 0;                 // the margin of DecideGate
  double poll_seconds = 0;                // between two looks at the folder; 0: never
  DeviceRuntime* runtime = nullptr;       // the gate measures on it; must outlive the registry
  int64_t publish_queue_limit = 0;        // waiting candidates; as many rollbacks
  double examination_macs_max = 0;        // ExaminationMacs of one candidate; more is refused
  double examination_seconds_max = 0;     // of the gate's measurement of one; more is refused
  // Warms a model or a generation before it is served. Called on the registry's thread. It may stop
  // where `interrupted` says yes. Empty: nothing is warmed.
  std::function<absl::Status(const WarmUpSubject&, const std::function<bool()>& interrupted)> warm;
  // How the gate measures. Empty: an EngineGate on `runtime`; tests set their own.
  GateMeasure measure;
  // Are requests being served? Thread-safe. While they are, an examination pauses longer than it
  // works. Empty: never.
  std::function<bool()> busy;
  // Is the daemon to end? Thread-safe; once true, always true. Then loading and examining stop at
  // their next step with kUnavailable. Empty: never.
  std::function<bool()> ending;
};

// An event for logs and metrics. Reported on the registry's thread, with no lock held.
struct RegistryEvent {
  // server/event_names.h says what logs and metrics call each.
  enum class Kind {
    kModelLoaded,  // a new one, or a changed one in place of the old
    kModelRefused,
    kModelUnloaded,
    kPublished,
    kRefused,
    kRolledBack
  };
  Kind kind;
  std::string model;
  std::string method;  // empty for model events
  int64_t generation = 0;
  std::string source;  // "start", "rpc", "folder"
  std::string detail;  // the verdict or the error, in words
};

}  // namespace hyperserve
