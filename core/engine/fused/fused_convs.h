// The fields of convolutions of one device that the fused engine has been asked for: which it can
// solve, and their weights there.
#pragma once

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "core/engine/batch_spec.h"
#include "core/engine/fused/fused_conv.h"
#include "core/engine/fused/packed_models.h"
#include "core/kernels/conv/conv_model.h"

namespace hyperserve {

// Thread-safe. Weights are packed and copied at the first use of a model with its correction.
class FusedConvs {
 public:
  explicit FusedConvs(MakeFusedConv make) : make_(std::move(make)) {}

  // OK, or kUnimplemented with the reason why the fused engine cannot run the spec. Throws as
  // LibTorch does. Precondition: CheckSpec(spec).ok().
  absl::Status Supports(const BatchSpec& spec);

  // The field of a spec. Fails with the reason of Supports; throws as LibTorch does.
  absl::StatusOr<std::shared_ptr<const FusedConv>> Find(const BatchSpec& spec);

 private:
  const MakeFusedConv make_;
  PackedModels<FusedConv> packed_;
};

// The plan of a solve in `steps` steps. Precondition: the spec is of fixed steps.
kernels::ConvPlan ConvPlanOf(const BatchSpec& spec, int64_t steps);

}  // namespace hyperserve
