// What the registry is given, and what it tells. The defaults stand on the daemon's page of options
// (server/options.h); here every number is the caller's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "core/engine/device_runtime.h"
#include "core/model/net/model.h"
#include "core/model/repository/calibration.h"
#include "server/registry/gate_decision.h"

namespace hyperserve {

// What is about to be served.
struct WarmUpSubject {
  std::shared_ptr<const Model> model;
  std::shared_ptr<const Hypersolver> correction;  // null: the model's classical plans
  const Calibration* calibration = nullptr;       // of the model, or of the correction's generation
};

struct RegistryOptions {
  std::string repository;            // the folder
  bool read_only = false;            // publish and rollback are refused with kFailedPrecondition
  double gate_margin = 0;            // as DecideGate's
  double poll_seconds = 0;           // between two looks at the folder for generations; 0: never
  DeviceRuntime* runtime = nullptr;  // where the gate measures; outlives the registry
  int64_t publish_queue_limit = 0;   // candidates waiting; more are kResourceExhausted
  // Warms what will be served on every serving device, before the swap; called on the registry's
  // thread. Where `interrupted` says yes, nobody waits for it any more. May be empty.
  std::function<absl::Status(const WarmUpSubject&, const std::function<bool()>& interrupted)> warm;
  // Empty: on `runtime`. Tests put their own here.
  GateMeasure measure;
  // True from the moment on where the daemon is to end: loading and examining stop at their next
  // step with kUnavailable. Thread-safe; may be empty.
  std::function<bool()> ending;
};

// What happened, for logs and metrics. Told on the registry's thread, outside its locks.
struct RegistryEvent {
  enum class Kind { kModelLoaded, kModelRefused, kPublished, kRefused, kRolledBack };
  Kind kind;
  std::string model;
  std::string method;  // empty for model events
  int64_t generation = 0;
  std::string source;  // "start", "rpc", "folder"
  std::string detail;  // the verdict or the error, in words
};

}  // namespace hyperserve
