// The captured steps of one device: of each spec and bucket one for each lane, so that as many runs
// as there are lanes use captured steps at once. A step is captured at a warm-up, before it serves;
// serving only starts it.
//
// Entries do not keep models alive: those whose model or correction is gone leave when the next
// step is captured. Thread-safe; must outlive its leases. For CUDA.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "core/engine/batch_spec.h"
#include "core/engine/captured/captured_work.h"
#include "core/engine/readable/slot_steps.h"
#include "core/engine/torch_scope.h"
#include "core/model/net/model.h"

namespace hyperserve {

// Runs that use captured steps at once: as many as a GPU has solvers.
inline constexpr size_t kGraphLanes = 2;

// Made by the DeviceRuntime of a CUDA device alone. Any thread: solvers ask and take, the
// registry's thread captures.
class StepGraphs {
 public:
  explicit StepGraphs(at::Device device);

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
  std::optional<Lease> Take(const BatchSpec& spec, int64_t rows);

  // Captures the step of the spec and the bucket in every lane; false where that was tried before,
  // or where nothing of that kind or size (CapturedRowsMax) is captured.
  // What goes wrong becomes the reason that Supports tells. `scratch` takes the work beside the
  // captures. Blocks the caller; serving goes on meanwhile. Precondition: a solve of the spec has
  // run in this thread, which made all that LibTorch makes once.
  bool Capture(const BatchSpec& spec, int64_t rows, const StreamLease& scratch);

 private:
  struct Lane {
    c10::Stream stream;
    std::unique_ptr<CaptureLane> captures;
    bool taken = false;  // guarded by mutex_
  };
  using Graphs = std::vector<std::shared_ptr<const StepGraph>>;  // one for each lane
  struct Step {
    absl::Status captured;
    Graphs graphs;
  };
  struct Entry {
    std::weak_ptr<const Model> model;
    std::weak_ptr<const Hypersolver> correction;
    BatchSpec step;  // what else a step depends on
    std::map<int64_t, Step> by_bucket = {};

    bool IsOf(const BatchSpec& spec) const;
    bool gone() const;
  };

  // Null: it was not tried. Needs mutex_.
  const Step* Find(const BatchSpec& spec, int64_t rows) const;
  Graphs MakeGraphs(const BatchSpec& spec, int64_t rows, const StreamLease& scratch) const;
  // Those of another step in the lane where they are alike: one run at a time uses the lane.
  std::shared_ptr<SlotPlaces> PlacesLike(std::shared_ptr<SlotPlaces> made, size_t lane) const;

  const at::Device device_;
  std::mutex capturing_;  // held during a capture
  mutable std::mutex mutex_;
  std::vector<Lane> lanes_;
  std::vector<Entry> entries_;  // guarded by mutex_
};

}  // namespace hyperserve
