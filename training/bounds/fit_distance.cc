#include "training/bounds/fit_distance.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/base/status.h"
#include "core/engine/readable/solve_setup.h"
#include "core/engine/readable/tensor_space.h"
#include "core/io/tensor.h"
#include "core/model/net/model.h"
#include "core/model/net/table.h"
#include "core/ode/solver_table.h"
#include "core/ode/space.h"
#include "training/data/recipe.pb.h"
#include "training/fit/table_start.h"
#include "training/optimise/optimise.h"

namespace hyperserve {
namespace {

constexpr int64_t kMapFeaturesMax = 8;       // of a flow whose readout has maps
constexpr int64_t kNumbersAtOnce = 1 << 20;  // of one feature; in double, with all others beside it
constexpr double kTiny = 1e-30;              // keeps logarithms finite
constexpr double kRankTolerance = 1e-13;     // as in table_start.cc
constexpr int kIterations = 500;

// The inner products of what a readout combines, for each row. G groups of numbers share nothing:
// the channels of an image, or the features of a flow, whose groups all combine every feature. M
// terms: z(s1), x_0, k_0 .. k_{n-1} (each once, or once for each feature) and 1.
struct Products {
  at::Tensor gram;    // [rows, G or 1, M, M]
  at::Tensor truth;   // [rows, G, M]: with z*(s1)
  at::Tensor error;   // [rows]: |z - z*| / |z*|
  at::Tensor size;    // [rows]: |z|
  at::Tensor weight;  // [rows]: 1 / |z*|^2
};

at::Tensor Norms(const at::Tensor& z) { return z.flatten(1).norm(2, 1).clamp_min(kNormMin); }

// z(s1), x_0, k_0, ..., k_{n-1}, in double.
std::vector<at::Tensor> States(const TensorSpace& space, const SolverTable<TableCoefficient>& table,
                               const at::Tensor& start, const at::Tensor& condition) {
  const PerRow rows(static_cast<size_t>(start.size(0)));
  auto progress = BeginTable(space, table, space.Start(start, condition));
  std::vector<at::Tensor> states = {{}, start.to(at::kDouble)};
  for (const double node : table.nodes) {
    auto slope = space.Field(PerRow(rows.size(), node), PointOf(progress));
    states.push_back(slope.z.to(at::kDouble));
    PushSlope(space, table, std::move(slope), progress);
  }
  states[0] = EndOfTable(space, table, progress).z.to(at::kDouble);
  return states;
}

// [rows, channels, pixels]; a feature of a wide flow is a channel of one pixel.
at::Tensor ByGroup(const at::Tensor& state) {
  return state.dim() > 2 ? state.flatten(2) : state.unsqueeze(2);
}

Products ProductsOf(Coefficients kind, const std::vector<at::Tensor>& states,
                    const at::Tensor& end) {
  const at::Tensor truth = end.to(at::kDouble);
  std::vector<at::Tensor> terms;
  at::Tensor targets;  // [rows, G, 1, P]
  at::Tensor design;   // [rows, G or 1, M, P]
  if (kind == Coefficients::kMap) {
    terms = states;
    terms.push_back(at::ones({truth.size(0), 1}, truth.options()));
    design = at::cat(terms, 1).view({truth.size(0), 1, -1, 1});
    targets = truth.view({truth.size(0), -1, 1, 1});
  } else {
    for (const at::Tensor& state : states) terms.push_back(ByGroup(state));
    terms.push_back(at::ones_like(terms.front()));
    design = at::stack(terms, 2);
    targets = ByGroup(truth).unsqueeze(2);
  }
  const at::Tensor size = Norms(truth);
  return {.gram = at::matmul(design, design.transpose(2, 3)),
          .truth = at::matmul(design, targets.transpose(2, 3)).squeeze(3),
          .error = Norms(states[0] - truth) / size,
          .size = Norms(states[0]),
          .weight = size.square().reciprocal()};
}

Products Joined(const std::vector<Products>& parts) {
  const auto join = [&](at::Tensor Products::*member) {
    std::vector<at::Tensor> all;
    for (const Products& part : parts) all.push_back(part.*member);
    return at::cat(all, 0);
  };
  return {.gram = join(&Products::gram),
          .truth = join(&Products::truth),
          .error = join(&Products::error),
          .size = join(&Products::size),
          .weight = join(&Products::weight)};
}

Products Rows(const Products& all, int64_t first, int64_t count) {
  const auto part = [&](const at::Tensor& x) { return x.narrow(0, first, count); };
  return {.gram = part(all.gram),
          .truth = part(all.truth),
          .error = part(all.error),
          .size = part(all.size),
          .weight = part(all.weight)};
}

// log(error / distance) of each row. readout: [G, M].
at::Tensor LogRatios(const Products& rows, const at::Tensor& readout) {
  const at::Tensor column = readout.unsqueeze(2);
  const at::Tensor squares =
      at::matmul(at::matmul(readout.unsqueeze(1), rows.gram), column).sum({1, 2, 3});
  return rows.error.clamp_min(kTiny).log() + rows.size.log() - 0.5 * squares.clamp_min(kTiny).log();
}

double Spread(const at::Tensor& log_ratios) { return log_ratios.std().item<double>(); }

// z(s1) less what least squares make of the first `terms` of x_0, k_0, ... and of 1. [G, M]
at::Tensor CoarserTable(const Products& rows, int64_t terms, int64_t width) {
  const int64_t groups = rows.truth.size(1), all = rows.truth.size(2);
  const at::Tensor weight = rows.weight.view({-1, 1, 1});
  const at::Tensor used =
      at::cat({at::arange(width, (1 + terms) * width), at::tensor({all - 1}, at::kLong)}, 0)
          .to(rows.gram.device());
  const at::Tensor gram =
      (rows.gram * weight.unsqueeze(3)).sum(0).index_select(1, used).index_select(2, used);
  const at::Tensor right = (rows.truth * weight).sum(0).index_select(1, used).unsqueeze(2);
  const at::Tensor solution =
      at::matmul(at::linalg_pinv(gram, kRankTolerance, /*hermitian=*/true), right).squeeze(2);
  at::Tensor readout = at::zeros({groups, all}, solution.options());
  readout.index_copy_(1, used, -solution);
  for (int64_t g = 0; g < groups; ++g) readout[g][width == 1 ? 0 : g].fill_(1.0);
  return readout;
}

// Adam on the spread, from `start`; keeps the best on the rows aside.
absl::StatusOr<at::Tensor> Polish(const Products& fitted, const Products& aside,
                                  const at::Tensor& start, const std::string& what) {
  // Every term of the readout in units of its typical size, so one rate suits all of them.
  const at::Tensor scale =
      fitted.gram.diagonal(0, 2, 3).mean(0).clamp_min(kTiny).sqrt().expand_as(start).contiguous();
  const at::Tensor size = (start * scale).norm();
  at::Tensor scaled = (start * scale / size).detach().clone();
  scaled.requires_grad_(true);
  const auto readout = [&] { return scaled / scale; };
  training::Optimiser optimiser;
  optimiser.set_iterations(kIterations);
  optimiser.set_rate(3e-3);
  optimiser.set_final_rate(3e-5);
  optimiser.set_warm_up(20);
  HS_ASSIGN_OR_RETURN(const Optimised polished,
                      Optimise({.what = what,
                                .optimiser = optimiser,
                                .tensors = {{"readout", scaled}},
                                .loss = [&](int) -> absl::StatusOr<at::Tensor> {
                                  return LogRatios(fitted, readout()).var();
                                },
                                .held_out = [&]() -> absl::StatusOr<double> {
                                  const at::NoGradGuard no_grad;
                                  return Spread(LogRatios(aside, readout()));
                                },
                                .error_name = "spread"}));
  if (polished.best_iteration == 0) return start;
  return polished.tensors.at("readout").to(scale.device()) / scale * size;
}

TensorMap TensorsOf(const at::Tensor& readout, int evaluations, Coefficients kind) {
  const int64_t states = evaluations + 2, groups = readout.size(0);
  const at::Tensor numbers = readout.to(at::kCPU, at::kFloat);
  const at::Tensor of_states = numbers.narrow(1, 0, numbers.size(1) - 1);
  const std::string name = TablePrefix(evaluations) + ".distance";
  const at::Tensor coefficients =
      kind == Coefficients::kMap
          ? of_states.reshape({groups, states, groups}).transpose(0, 1).contiguous()
          : of_states.t().contiguous();
  return {{name, coefficients},
          {name + "_offset",
           numbers.select(1, states * (kind == Coefficients::kMap ? groups : 1)).contiguous()}};
}

}  // namespace

Coefficients DistanceKind(const Shape& state_shape) {
  return state_shape.size() == 1 && state_shape[0] <= kMapFeaturesMax ? Coefficients::kMap
                                                                      : Coefficients::kChannel;
}

absl::StatusOr<FittedDistance> FitDistance(const BatchSpec& spec, int evaluations,
                                           const DistanceRows& rows) {
  const Shape& shape = spec.model->state_shape();
  const Coefficients kind = DistanceKind(shape);
  const int64_t width = kind == Coefficients::kMap ? shape[0] : 1, count = rows.start.size(0);
  Products fitted, aside;
  at::Tensor start;
  double least = std::numeric_limits<double>::infinity();
  {
    const at::NoGradGuard no_grad;
    const at::Device device = rows.start.device();
    const int64_t at_once =
        std::clamp<int64_t>(kNumbersAtOnce / (rows.start.numel() / count), 1, count);
    const SolveSetup setup = SetUpSolve(spec, at_once, device);
    const auto table = TableFor(spec, evaluations, device);
    std::vector<Products> parts;
    for (int64_t first = 0; first < count; first += at_once) {
      const int64_t part = std::min(at_once, count - first);
      const auto of_part = [&](const at::Tensor& all) {
        return all.defined() ? all.narrow(0, first, part) : all;
      };
      parts.push_back(
          ProductsOf(kind, States(setup.space, table, of_part(rows.start), of_part(rows.condition)),
                     of_part(rows.end)));
    }
    const Products all = Joined(parts);
    const int64_t kept = count - count / 4;
    fitted = Rows(all, 0, kept);
    aside = Rows(all, kept, count - kept);
    for (int64_t terms = 0; terms <= std::max(evaluations, 1); ++terms) {
      const at::Tensor candidate = CoarserTable(fitted, terms, width);
      const double spread = Spread(LogRatios(aside, candidate));
      if (spread >= least) continue;
      least = spread;
      start = candidate;
    }
  }
  HS_ASSIGN_OR_RETURN(
      const at::Tensor readout,
      Polish(fitted, aside, start, absl::StrFormat("distance of learned:%d", evaluations)));
  const at::NoGradGuard no_grad;
  return FittedDistance{.tensors = TensorsOf(readout, evaluations, kind),
                        .spread_constant = Spread(aside.error.clamp_min(kTiny).log()),
                        .spread_start = least,
                        .spread = Spread(LogRatios(aside, readout))};
}

}  // namespace hyperserve
