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
  virtual bool Takes(const kernels::FlowTask& task) const = 0;

  // The rows of a launch that can be expected to end within its time: a guess. Precondition:
  // Takes(plan).
  virtual int64_t RowsAtOnce(const kernels::FlowAdaptivePlan& plan) const = 0;

  // Starts a solve on the current stream of the flow's device and does not wait for it. The
  // pointers in `rows` are memory of that device. Throws c10::Error where the launch fails.
  // Precondition: Takes(task).
  virtual void Solve(const kernels::FlowTask& task, const kernels::FlowRows& rows) const = 0;
};

// Copies the weights of a flow to a device: for fixed plans in kFast, for adaptive ones in kExact.
// Throws as LibTorch does. Precondition: kernels::FlowMisfit(model).empty().
using MakeFusedFlow = std::function<std::shared_ptr<const FusedFlow>(
    const kernels::FlowModel& model, kernels::FlowPrecision precision)>;

}  // namespace hyperserve
