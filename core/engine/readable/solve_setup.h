// Turns a BatchSpec into the space of the solver and the maps before and after it.
#pragma once

#include <ATen/ATen.h>

#include "core/engine/batch_spec.h"
#include "core/engine/readable/row_padding.h"
#include "core/engine/readable/tensor_space.h"
#include "core/model/net/bound_layer.h"
#include "core/model/net/net.h"
#include "core/model/net/table.h"
#include "core/ode/solver_table.h"

namespace hyperserve {

// The input map h_x or the output map h_y. Apply pads the rows, and returns rows of the same
// number; it returns them unchanged where the net has no layers. Throws as LibTorch does.
struct PaddedMap {
  Net net;
  RowPadding padding;
  Dual Apply(const Dual& rows) const;
  at::Tensor Apply(const at::Tensor& rows) const { return Apply(Dual{rows, {}}).value; }
};

// What a run is made of. Immutable after SetUpSolve; a run owns it and lends its space to the
// solver.
struct SolveSetup {
  TensorSpace space;
  PaddedMap stem, head;
  int64_t bucket = 0;  // rows that the nets of the space see at the start
};

// For a run that starts with `rows` rows. Copies the weights to the device at their first use
// there. Throws as LibTorch does. Precondition: CheckSpec(spec).ok().
SolveSetup SetUpSolve(const BatchSpec& spec, int64_t rows, at::Device device);

// Evaluates each net of the spec once, on zeros, in the setup's bucket. Throws as LibTorch does.
void EvaluateNets(const BatchSpec& spec, const SolveSetup& setup, at::Device device);

// The table of rows that ask for this number of steps (ab2) or evaluations (learned). Throws as
// LibTorch does. Precondition: the spec's method runs from a table, and CheckSegment accepted the
// number.
SolverTable<TableCoefficient> TableFor(const BatchSpec& spec, int64_t steps, at::Device device);

// True where the solve ends at data. kForward stands for the field's own direction.
bool RunsToData(const BatchSpec& spec);

// The dtype of the results: F64 in tier double, else F32.
at::ScalarType ResultDtype(const BatchSpec& spec);
// The dtype of the solve: F64 for every step map, else that of the results. Where a step map is
// nearly singular, its determinant is a small difference of large numbers; in float32 a log-density
// of the golden pinwheel is off by 3e-3 where |det| is 1e-3.
at::ScalarType SolveDtype(const BatchSpec& spec);

}  // namespace hyperserve
