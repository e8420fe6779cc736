// A model of images and its correction as the plain data that the fused kernel takes.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "core/io/tensor.h"
#include "core/kernels/conv/conv_model.h"
#include "core/model/layers/kind.h"
#include "core/model/layers/layer.h"
#include "core/model/net/model.h"

namespace hyperserve {

// kUnimplemented says what the fused kernel cannot run: a state that is no image, a layer that it
// does not have, or what kernels::ConvMisfit finds. Throws as LibTorch does. `correction` may be
// null; of a learned solver it has a table of so many evaluations. Reads every weight: made once
// per model, not per batch. Convolutions of several groups and of 1x1 become dense ones of 3x3; one
// of 1x1 is folded into the one before it where no activation stands between, so that a separable
// convolution costs what a plain one does.
absl::StatusOr<kernels::ConvModel> ConvModelOf(const Model& model, const Hypersolver* correction,
                                               int64_t evaluations = 0);

// At least what the kernel multiplies in one evaluation of these layers on one image: more than the
// layers say where they have groups.
int64_t FusedConvMacs(const LayerList& layers, const Shape& state);

}  // namespace hyperserve
