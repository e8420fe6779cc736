// The fields of convolutions of one device that the fused engine has been asked for: which it can
// solve, and their weights there.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "core/engine/batch_spec.h"
#include "core/engine/fused/fused_conv.h"
#include "core/engine/fused/packed_models.h"
#include "core/kernels/conv/conv_model.h"
#include "core/plan/step_control.h"

namespace hyperserve {

// Thread-safe. Weights are packed and copied at the first use of a model with its correction.
class FusedConvs {
 public:
  explicit FusedConvs(MakeFusedConv make) : make_(std::move(make)) {}

  // OK, or kUnimplemented with the reason why the fused engine cannot run the spec. Throws as
  // LibTorch does. Precondition: CheckSpec(spec).ok().
  absl::Status Supports(const BatchSpec& spec);

  // The field of a spec; of a learned solver, by its table of so many evaluations. Fails with the
  // reason of Supports; throws as LibTorch does.
  absl::StatusOr<std::shared_ptr<const FusedConv>> Find(const BatchSpec& spec, int64_t evaluations);

 private:
  absl::Status Supports(const BatchSpec& spec, int64_t evaluations);

  const MakeFusedConv make_;
  PackedModels<FusedConv> packed_;
};

// The task of a solve under this control. Precondition: it is of the spec's stepping.
kernels::ConvTask ConvTaskOf(const BatchSpec& spec, const StepControl& control);

}  // namespace hyperserve
