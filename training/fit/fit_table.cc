#include "training/fit/fit_table.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/base/status.h"
#include "core/model/net/table.h"
#include "core/ode/solver_table.h"
#include "core/plan/plan.h"
#include "training/fit/parameters.h"
#include "training/fit/truth.h"
#include "training/optimise/optimise.h"

namespace hyperserve {
namespace {

std::string NetPrefix(const TableSpec& table) { return TablePrefix(table.evaluations) + ".net"; }

std::string DepthName(const TableSpec& table) { return TablePrefix(table.evaluations) + ".depth"; }

std::vector<double> NodesOf(const TableSpec& table, const TensorMap& tensors) {
  if (table.evaluations == 0) return {};
  const at::Tensor depth = tensors.at(DepthName(table)).detach().to(at::kCPU, at::kDouble);
  return {depth.data_ptr<double>(), depth.data_ptr<double>() + depth.numel()};
}

// f at x and a node. TensorSpace::Field takes depths as numbers; here the gradient reaches the
// node.
TensorSpace::State SlopeAt(const TensorSpace& space, const at::Tensor& node,
                           const TensorSpace::State& x) {
  const std::optional<double>& clock_sum = space.options().reflected_clock_sum;
  const at::Tensor depth = clock_sum.has_value() ? *clock_sum - node : node;
  const at::Tensor slope =
      space.options().field.Apply(x.z, depth.expand({x.z.size(0)}), x.condition);
  return {.z = clock_sum.has_value() ? slope.neg() : slope, .tangents = {}, .log_density = {}};
}

double ErrorOf(const TableSolves& solves, const TensorMap& tensors, const EndTruth& truth) {
  const at::NoGradGuard no_grad;
  const double error = EndError(solves, tensors, truth).item<double>();
  return std::isfinite(error) ? error : std::numeric_limits<double>::infinity();
}

EndTruth Batch(const GridTruth& truth, int64_t rows, RandomStream& stream) {
  const at::Tensor indices = IndexTensor(DrawRows(stream, truth.start.size(0), rows), truth.start);
  const auto drawn = [&](const at::Tensor& all) {
    return all.defined() ? all.index_select(0, indices) : at::Tensor();
  };
  return {.start = drawn(truth.start),
          .end = drawn(truth.states.back()),
          .condition = drawn(truth.condition)};
}

}  // namespace

at::Tensor EndError(const TableSolves& solves, const TensorMap& tensors, const EndTruth& truth) {
  const TableSpec& table = solves.table;
  TensorSpace::Options options = solves.space;
  if (!table.net.empty()) {
    options.readouts.emplace(
        table.evaluations,
        TensorSpace::ReadoutNet{.net = Net::Make(table.net, NetPrefix(table), tensors).value(),
                                .inputs = table.inputs});
  }
  const TensorSpace space(std::move(options));
  const auto bound = BindTable(table, solves.state_shape, tensors, NodesOf(table, tensors));
  auto progress = BeginTable(space, bound, space.Start(truth.start, truth.condition));
  for (int i = 0; i < table.evaluations; ++i) {
    const at::Tensor node = tensors.at(DepthName(table)).select(0, i);
    PushSlope(space, bound, SlopeAt(space, node, PointOf(progress)), progress);
  }
  const at::Tensor end = EndOfTable(space, bound, progress).z;
  const auto norms = [](const at::Tensor& x) {
    return x.flatten(1).square().sum(1).clamp_min(kNormMin * kNormMin).sqrt();
  };
  return (norms(end - truth.end) / norms(truth.end)).mean();
}

FittedTable StartTable(const TableSolves& solves, const GridTruth& truth,
                       const EndTruth& validation, const TableFit& fit) {
  const TableSpec& table = solves.table;
  TensorMap net;
  if (!table.net.empty()) {
    RandomStream weights(fit.net_seed, RandomPurpose::kWeights);
    net = InitialTensors(table.net, NetPrefix(table), weights);
    ZeroLastLayer(table.net, NetPrefix(table), net);
  }
  FittedTable best;
  const auto consider = [&](std::string name, TensorMap tensors) {
    tensors.merge(TensorMap(net));
    for (auto& [key, tensor] : tensors) tensor = tensor.to(validation.start.device(), at::kFloat);
    const double error = ErrorOf(solves, tensors, validation);
    if (!best.start.empty() && error >= best.error) return;
    best = {.tensors = std::move(tensors),
            .start = std::move(name),
            .start_error = error,
            .error = error};
  };
  for (const FixedPlan& plan : fit.starts) {
    const auto numbers = ClassicalTable(plan, truth.span[0], truth.span[1]);
    consider(PrintPlan({.choice = plan, .tier = Tier::kExact}),
             TableTensors(numbers, table.coefficients, solves.state_shape));
  }
  consider(table.evaluations == 0 ? "identity" : "least squares",
           LeastSquaresTensors(TensorSpace(solves.space), table, truth));
  for (const GridTruth& other : fit.grids) {
    consider(absl::StrCat("least squares on ", other.grid.name),
             LeastSquaresTensors(TensorSpace(solves.space), table, other));
  }
  if (fit.from.has_value()) consider("generation", *fit.from);
  return best;
}

double StepSeconds(const TableSolves& solves, const FittedTable& start, const GridTruth& truth,
                   int64_t rows) {
  const int64_t count = std::min(rows, truth.start.size(0));
  const auto first = [count](const at::Tensor& all) {
    return all.defined() ? all.narrow(0, 0, count) : all;
  };
  const EndTruth batch{.start = first(truth.start),
                       .end = first(truth.states.back()),
                       .condition = first(truth.condition)};
  const TensorMap tensors = TrainableCopies(start.tensors, truth.start.device());
  double seconds = 0;
  for (int run = 0; run < 2; ++run) {  // the first one warms up
    const auto begin = std::chrono::steady_clock::now();
    const at::Tensor error = EndError(solves, tensors, batch);
    error.backward();
    error.item<double>();  // waits for a GPU
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  return seconds;
}

absl::StatusOr<FittedTable> FitTable(const TableSolves& solves, const GridTruth& truth,
                                     const EndTruth& validation, const TableFit& fit,
                                     FittedTable start, RandomStream& stream) {
  const TensorMap tensors = TrainableCopies(start.tensors, validation.start.device());
  const bool has_nodes = solves.table.evaluations > 0;
  at::Tensor nodes = has_nodes ? tensors.at(DepthName(solves.table)) : at::Tensor();
  const Net& field = solves.space.field;
  const bool fits_nodes = has_nodes && field.uses_depth() && field.has_derivatives();
  if (has_nodes) nodes.requires_grad_(fits_nodes);
  HS_ASSIGN_OR_RETURN(Optimised fitted,
                      Optimise({.what = fit.name,
                                .optimiser = fit.optimiser,
                                .tensors = tensors,
                                .loss = [&](int) -> absl::StatusOr<at::Tensor> {
                                  return EndError(solves, tensors,
                                                  Batch(truth, fit.optimiser.batch(), stream));
                                },
                                .after =
                                    [&](int) {
                                      const at::NoGradGuard no_grad;
                                      if (fits_nodes) nodes.clamp_(truth.span[0], truth.span[1]);
                                      return absl::OkStatus();
                                    },
                                .held_out = [&]() -> absl::StatusOr<double> {
                                  return ErrorOf(solves, tensors, validation);
                                },
                                .check_every = fit.check_every,
                                .save = [&](TensorMap& state) { SaveStream(stream, state); },
                                .load = [&](const TensorMap& state) { LoadStream(state, stream); },
                                .checkpoints = fit.checkpoints,
                                .checkpoint = TablePrefix(solves.table.evaluations),
                                .time_left = fit.time_left,
                                .step_kind = fit.step_kind,
                                .check_kind = fit.check_kind}));
  start.tensors = std::move(fitted.tensors);
  start.error = fitted.error;
  start.best_iteration = fitted.best_iteration;
  start.remark = fitted.Remark();
  start.curve = {.fit = absl::StrCat("learned:", solves.table.evaluations),
                 .points = std::move(fitted.curve)};
  return start;
}

}  // namespace hyperserve
