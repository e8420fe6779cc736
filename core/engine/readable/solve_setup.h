// A BatchSpec as what the solver wants: the space, and the maps before and after it.
#pragma once

#include <ATen/ATen.h>

#include "core/engine/batch_spec.h"
#include "core/engine/readable/row_padding.h"
#include "core/engine/readable/tensor_space.h"
#include "core/model/net/net.h"

namespace hyperserve {

// The input or the output map on rows, padded as it needs.
struct PaddedMap {
  Net net;
  RowPadding padding;
  at::Tensor Apply(const at::Tensor& rows) const;
};

struct SolveSetup {
  TensorSpace space;
  PaddedMap stem, head;
  int64_t bucket = 0;  // rows that the nets of the space see at the start
};

// For a run that starts with so many rows. Precondition: CheckSpec(spec).ok().
SolveSetup SetUpSolve(const BatchSpec& spec, int64_t rows, at::Device device);

// Does the solve end at data? The field's own direction decides where the spec says kForward.
bool RunsToData(const BatchSpec& spec);

// What the results are given in: F32, or F64 in tier double.
at::ScalarType ResultDtype(const BatchSpec& spec);
// What the solve computes in: the same, but F64 for every step map. Where a map nearly folds, its
// determinant is a small difference of large numbers: in float32 a log-density of the golden
// pinwheel is off by 3e-3 where |det| is 1e-3.
at::ScalarType SolveDtype(const BatchSpec& spec);

}  // namespace hyperserve
