// The captured steps of one device, of each spec and bucket one for each lane. A step is captured
// at a warm-up, before it serves; serving only starts it. Thread-safe; for CUDA.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "core/engine/batch_spec.h"
#include "core/engine/captured/capture_lanes.h"
#include "core/engine/captured/captured_works.h"
#include "core/engine/readable/slot_steps.h"
#include "core/engine/torch_scope.h"

namespace hyperserve {

// Made by the DeviceRuntime of a CUDA device alone. Any thread: solvers ask and take, the
// registry's thread captures.
class StepGraphs {
 public:
  // The lanes must outlive it.
  explicit StepGraphs(CaptureLanes* lanes);

  // OK where steps of the spec were captured for the bucket of so many rows, else kUnimplemented
  // with the reason. Does not wait for a capture that is under way, and counts no lane: a step may
  // be supported and every lane taken.
  absl::Status Supports(const BatchSpec& spec, int64_t rows) const;

  // A lane for one run alone, with the step in it.
  struct Lease {
    StreamLease stream;
    std::shared_ptr<const StepGraph> graph;
  };
  // nullopt: every lane is taken. Precondition: Supports(spec, rows).ok(). The lane is free again
  // when the last copy of the lease's stream goes. Never waits.
  std::optional<Lease> Take(const BatchSpec& spec, int64_t rows) const;

  // Captures the step of the spec and the bucket in every lane; false where that was tried before,
  // or where nothing of that kind or size (CapturedRowsMax) is captured.
  // What goes wrong becomes the reason that Supports tells. `scratch` takes the work beside the
  // captures. Blocks the caller; serving goes on meanwhile, and so may captures of other specs in
  // other threads. Precondition: a solve of the spec has run in this thread, which made all that
  // LibTorch makes once.
  bool Capture(const BatchSpec& spec, int64_t rows, const StreamLease& scratch);

 private:
  using Graphs = std::vector<std::shared_ptr<const StepGraph>>;  // one for each lane
  Graphs MakeGraphs(const BatchSpec& spec, int64_t rows, const StreamLease& scratch) const;

  CaptureLanes* const lanes_;
  CapturedWorks<StepGraph> works_;
};

}  // namespace hyperserve
