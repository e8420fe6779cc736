// A model of images and its correction as the plain data that the fused kernel takes.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "core/kernels/conv/conv_model.h"
#include "core/model/net/model.h"

namespace hyperserve {

// kUnimplemented says what the fused kernel cannot run: a state that is no image, a layer that it
// does not have, or what kernels::ConvMisfit finds. Throws as LibTorch does. `correction` may be
// null; of a learned solver it has a table of so many evaluations. Reads every weight: made once
// per model, not per batch.
absl::StatusOr<kernels::ConvModel> ConvModelOf(const Model& model, const Hypersolver* correction,
                                               int64_t evaluations = 0);

}  // namespace hyperserve
