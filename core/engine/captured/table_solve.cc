#include "core/engine/captured/table_solve.h"

#include <limits>
#include <utility>

#include "core/engine/readable/row_numbers.h"
#include "core/engine/readable/tensor_space.h"
#include "core/io/tensor.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "core/ode/space.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"

namespace hyperserve {
namespace {

using State = TensorSpace::State;

// As DistancesOfTable takes them: with relative tolerance 0 and absolute tolerance 1.
at::Tensor SquaresOf(const at::Tensor& x, const at::Tensor& end) {
  const auto doubles = end.options().dtype(at::kDouble);
  const at::Tensor tolerances =
      at::stack({at::zeros({end.size(0)}, doubles), at::ones({end.size(0)}, doubles)});
  return RowErrorSquares(x, end, end, tolerances);
}

at::Tensor OrNaN(const at::Tensor& finite, const at::Tensor& y) {
  const at::Tensor none = at::full({}, std::numeric_limits<double>::quiet_NaN(), y.options());
  return at::where(OverRows(finite, y, 0), y, none);
}

}  // namespace

bool TableSolveSupports(const BatchSpec& spec) {
  return RunsFromTable(spec.method.method) && spec.tier != Tier::kFast &&
         spec.log_density == LogDensity::kNone && spec.derivative == Derivative::kNone &&
         spec.guidance == 0 && !spec.model->spec().field_package;
}

TableSolve SetUpTableSolve(const BatchSpec& spec, int64_t steps, int64_t bucket,
                           at::Device device) {
  return {.setup = SetUpSolve(spec, bucket, device),
          .table = TableFor(spec, steps, device),
          .of_inputs = spec.entry == Entry::kInput,
          .has_outputs = HasOutputs(spec.model->spec().kind)};
}

TableEnds SolveWholeTable(const TableSolve& solve, const TableRows& rows) {
  const TensorSpace& space = solve.setup.space;
  const SolverTable<TableCoefficient>& table = solve.table;
  const at::Tensor z0 = solve.of_inputs ? solve.setup.stem.Apply(rows.start) : rows.start;
  auto progress = BeginTable(space, table, space.Start(z0, rows.condition));
  for (const double node : table.nodes) {
    const PerRow depths(static_cast<size_t>(z0.size(0)), node);
    PushSlope(space, table, space.Field(depths, PointOf(progress)), progress);
  }
  const State end = EndOfTable(space, table, progress);
  TableEnds ends;
  if (table.distance) {
    const State difference = space.AddScaled(*progress.difference, table.distance->end, end);
    ends.squares = at::stack({SquaresOf(difference.z, end.z), SquaresOf(end.z, end.z)});
  }
  ends.finite = at::isfinite(end.z).flatten(1).all(1);
  ends.state = at::where(OverRows(ends.finite, end.z, 0), end.z, z0);
  if (solve.has_outputs) ends.outputs = OrNaN(ends.finite, solve.setup.head.Apply(ends.state));
  return ends;
}

TableRows ZeroTableRows(const BatchSpec& spec, const TableSolve& solve, at::Device device) {
  const auto options = at::TensorOptions(device).dtype(SolveDtype(spec));
  const ModelSpec& model = spec.model->spec();
  const auto zeros = [&](Shape shape) {
    shape.insert(shape.begin(), solve.setup.bucket);
    return at::zeros(shape, options);
  };
  TableRows rows{.start = zeros(solve.of_inputs ? model.input.shape : spec.model->state_shape()),
                 .condition = {}};
  if (!model.condition.empty()) rows.condition = zeros(model.condition);
  return rows;
}

}  // namespace hyperserve
