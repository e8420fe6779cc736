// Fits the distance readout of a learned solver's table (core/ode/solver_table.h), so that a row's
// distance is in proportion to its error.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "core/engine/batch_spec.h"
#include "core/io/tensor.h"
#include "core/model/net/net.h"
#include "core/model/spec/spec.h"
#include "training/data/dataset.h"

namespace hyperserve {

// Rows to fit on, with their true ends.
struct DistanceRows {
  at::Tensor start;           // z(s0), float32
  at::Tensor end;             // z*(s1), likewise
  at::Tensor condition = {};  // of each row; undefined where the model has none
};

// The readout of one table, and what it is worth: a smaller spread makes tighter bounds.
struct FittedDistance {
  TensorMap tensors;  // table.<n>.distance and .distance_offset, float32 on the CPU
  // The standard deviation of log(error / distance) on a quarter of the rows, which the fit does
  // not see: of a constant distance, of the start and of the result.
  double spread_constant = 0, spread_start = 0, spread = 0;
};

// The coefficients that fit a state: maps for a few features, one number a channel for images.
Coefficients DistanceKind(const Shape& state_shape);

// Starts at the coarser tables that least squares give, of the same slopes but the last, the last
// two and so on, weighted by 1 / |z*|, and keeps the best. Then Adam on the variance of
// log(error / distance) over three quarters of the rows; the readout of the least spread on the
// others is kept. The slopes enter as inner products of each row, which are computed once, so a fit
// takes n evaluations of f on each row and some seconds. `spec` is that of the table's solves.
// Fails as Optimise does.
absl::StatusOr<FittedDistance> FitDistance(const BatchSpec& spec, int evaluations,
                                           const DistanceRows& rows);

}  // namespace hyperserve
