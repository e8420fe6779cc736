// Fits the table of a learned solver for one number n of evaluations, and its readout g. Runs on
// the calling thread.
#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/engine/readable/tensor_space.h"
#include "core/io/tensor.h"
#include "core/model/net/net.h"
#include "core/model/spec/spec.h"
#include "core/plan/plan.h"
#include "programs/time_left.h"
#include "training/data/random.h"
#include "training/data/recipe.pb.h"
#include "training/fit/table_start.h"
#include "training/optimise/checkpoints.h"
#include "training/optimise/curve.h"

namespace hyperserve {

// The solves of one table.
struct TableSolves {
  TensorSpace::Options space;  // without a readout
  TableSpec table;
  Shape state_shape;
};

// x_0 and z*(s1) of some rows.
struct EndTruth {
  at::Tensor start, end;
  at::Tensor condition = {};  // of each row; undefined where the model has none
};

// Mean over rows of |z(s1) - z*(s1)| / |z*(s1)|. `tensors` are those of the table and its readout,
// with the names of the file; the error is differentiable in all of them.
at::Tensor EndError(const TableSolves& solves, const TensorMap& tensors, const EndTruth& truth);

// How one table is fitted. Borrows time_left and checkpoints for the call.
struct TableFit {
  std::string name;  // progress lines begin with it
  training::Optimiser optimiser;
  int check_every = 25;           // iterations between two measurements of the validation rows
  int net_seed = 0;               // of the readout's initial weights
  std::vector<FixedPlan> starts;  // classical plans of n evaluations
  std::vector<GridTruth> grids;   // the truth on other grids, for least squares at their nodes
  std::optional<TensorMap> from;  // a refresh: tensors of another fit of the same table
  TimeLeft* time_left = nullptr;  // of all tables; null: of this one alone
  size_t step_kind = 0, check_kind = 0;  // this table's pieces in it
  Checkpoints* checkpoints = nullptr;    // null: none
};

// A table with its readout and how it came about. Errors are those of EndError.
struct FittedTable {
  TensorMap tensors;         // on the CPU
  std::string start;         // "midpoint:2", "least squares", "generation"; "identity" for n = 0
  std::string joined = {};   // what another generation says of this table that it fitted
  double start_error = 0.0;  // on the validation rows
  double error = 0.0;
  int best_iteration = 0;
  std::string remark = {};  // of Optimised
  Curve curve = {};
};

// Where a fit begins, on the device of the rows: the best on the validation rows of `starts`, least
// squares on the grids of `truth` and of `grids`, and `from`. The readout is zero.
FittedTable StartTable(const TableSolves& solves, const GridTruth& truth,
                       const EndTruth& validation, const TableFit& fit);

// What a step from there takes, in seconds: the error of `rows` rows, and its gradient.
double StepSeconds(const TableSolves& solves, const FittedTable& start, const GridTruth& truth,
                   int64_t rows);

// AdamW on the EndError of drawn rows, from `start`. The depths s_i are fitted too where f reads
// the depth, and stay within the span. Where f is code without derivatives, the fit moves what no
// further evaluation follows: the last row of the table, and the readout. The tensors of the least
// error on the validation rows are kept, so on them the result never errs more than its start.
// Fails as Optimise does.
absl::StatusOr<FittedTable> FitTable(const TableSolves& solves, const GridTruth& truth,
                                     const EndTruth& validation, const TableFit& fit,
                                     FittedTable start, RandomStream& stream);

}  // namespace hyperserve
