// The flows of one device that the fused engine has been asked for: which it can solve, and their
// weights there.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "absl/status/statusor.h"
#include "core/engine/batch_spec.h"
#include "core/engine/fused/fused_flow.h"
#include "core/kernels/flow/flow_model.h"
#include "core/model/net/model.h"
#include "core/plan/step_control.h"

namespace hyperserve {

// Thread-safe. Weights are packed and copied at the first use of a model with its correction,
// outside the lock. They leave the device when, after either has gone, others are packed.
class FusedFlows {
 public:
  explicit FusedFlows(MakeFusedFlow make) : make_(std::move(make)) {}

  // OK, or kUnimplemented with the reason why the fused engine cannot run the spec. Throws as
  // LibTorch does. Precondition: CheckSpec(spec).ok().
  absl::Status Supports(const BatchSpec& spec);

  // The flow of a spec; of a learned solver, by its table of so many evaluations. Fails with the
  // reason of Supports; throws as LibTorch does.
  absl::StatusOr<std::shared_ptr<const FusedFlow>> Find(const BatchSpec& spec,
                                                        int64_t evaluations = 0);

 private:
  absl::Status Supports(const BatchSpec& spec, int64_t evaluations);

  using Key = std::tuple<const Model*, const Hypersolver*, kernels::FlowPrecision, int64_t>;
  using Found = absl::StatusOr<std::shared_ptr<const FusedFlow>>;
  struct Entry {
    std::weak_ptr<const Model> model;
    std::weak_ptr<const Hypersolver> correction;
    Found flow;
  };

  const MakeFusedFlow make_;
  std::mutex mutex_;
  // By address; guarded by mutex_. An entry whose model has gone says nothing of another there.
  std::map<Key, Entry> entries_;
};

// The plan of a solve. Precondition: the spec is of a flow, and of the control's stepping.
kernels::FlowPlan FlowPlanOf(const BatchSpec& spec, const FixedSteps& control);
// It has no log-density: Supports refuses one under error control.
kernels::FlowAdaptivePlan FlowPlanOf(const BatchSpec& spec, const ErrorControl& control);

}  // namespace hyperserve
