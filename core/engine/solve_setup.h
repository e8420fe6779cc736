// A BatchSpec as what the solver wants: checked, then a space, options and a bucket.
#pragma once

#include <ATen/ATen.h>

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/engine/engine.h"
#include "core/engine/tensor_space.h"
#include "core/ode/solve_options.h"

namespace hyperserve {

// A step map or a divergence costs as many tangents as the state has numbers; beyond this the
// exact way is refused.
inline constexpr int64_t kTangentsMax = 64;

// Everything about a spec that can be wrong without looking at rows: kInvalidArgument, or
// kUnimplemented for what the readable engine does not do.
absl::Status CheckSolve(const BatchSpec& spec);

struct SolveSetup {
  TensorSpace space;
  SolveOptions options;
  int64_t bucket = 0;
};

// Precondition: CheckSolve(spec).ok().
SolveSetup SetUpSolve(const BatchSpec& spec, int64_t rows, at::Device device);

// The padding that these nets need together; each with the shape of its rows.
RowPadding PaddingOf(const std::vector<std::pair<const LayerList*, Shape>>& nets, int64_t rows,
                     at::Device device);

// Does the solve end at data? The field's own direction decides where the spec says kForward.
bool RunsToData(const BatchSpec& spec);

// What the results are given in: F32, or F64 in tier double.
at::ScalarType ResultDtype(const BatchSpec& spec);
// What the solve computes in: the same, but F64 for every step map. Where a map nearly folds, its
// determinant is a small difference of large numbers: in float32 a log-density of the golden
// pinwheel is off by 3e-3 where |det| is 1e-3.
at::ScalarType SolveDtype(const BatchSpec& spec);

}  // namespace hyperserve
