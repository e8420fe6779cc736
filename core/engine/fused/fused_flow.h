// A flow whose weights lie on a device, ready for solves in one launch each. The device's file
// (device_cuda.cc) implements it with the fused kernel; tests implement it on the host.
#pragma once

#include <functional>
#include <memory>

#include "core/kernels/flow/flow_model.h"
#include "core/kernels/flow/flow_rows.h"

namespace hyperserve {

// Immutable; several threads may use one.
class FusedFlow {
 public:
  virtual ~FusedFlow() = default;

  // False: the weights and the plan's stages do not fit in the memory of a multiprocessor.
  virtual bool Takes(const kernels::FlowPlan& plan) const = 0;

  // Starts a solve on the current stream of the flow's device and does not wait for it. The
  // pointers in `rows` are memory of that device. Throws c10::Error where the launch fails.
  // Precondition: Takes(plan).
  virtual void Solve(const kernels::FlowPlan& plan, const kernels::FlowRows& rows) const = 0;
};

// Copies the weights of a flow to a device. Throws as LibTorch does. Precondition:
// kernels::FlowMisfit(model).empty().
using MakeFusedFlow =
    std::function<std::shared_ptr<const FusedFlow>(const kernels::FlowModel& model)>;

}  // namespace hyperserve
