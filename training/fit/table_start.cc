#include "training/fit/table_start.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "core/io/tensor.h"
#include "core/ode/space.h"

namespace hyperserve {
namespace {

// Rows times pixels that a regression takes: 32 channels of them in double are 134 MB a feature.
constexpr int64_t kLinesMax = 1 << 19;

// Of the largest eigenvalue of the normal equations. Below it a direction is not determined.
constexpr double kRankTolerance = 1e-13;

// The coefficients of one table, in the order of their files.
struct Columns {
  std::vector<double> nodes;
  std::vector<at::Tensor> state, slopes, offset;
};

TensorMap Packed(const TableSpec& spec, const Columns& columns) {
  if (columns.nodes.empty()) return {};
  const std::string prefix = TablePrefix(spec.evaluations);
  const auto pack = [](const std::vector<at::Tensor>& all) {
    return at::stack(all).to(at::kFloat).contiguous();
  };
  return {{prefix + ".state", pack(columns.state)},
          {prefix + ".slopes", pack(columns.slopes)},
          {prefix + ".offset", pack(columns.offset)},
          {prefix + ".depth", at::tensor(columns.nodes, at::kFloat)}};
}

// [rows, C, ...] as one line for each row and pixel: [lines, C], in double.
at::Tensor Lines(const at::Tensor& z) {
  const at::Tensor lines = z.dim() > 2 ? z.flatten(2).transpose(1, 2) : z;
  return lines.reshape({-1, z.size(1)}).to(at::kDouble);
}

// The inverse.
at::Tensor FromLines(const at::Tensor& lines, const at::Tensor& like) {
  if (like.dim() <= 2) return lines.to(like.scalar_type());
  const at::Tensor rows = lines.view({like.size(0), -1, like.size(1)}).transpose(1, 2);
  return rows.reshape(like.sizes()).to(like.scalar_type());
}

// 1 / |z| of the row that each line belongs to: [lines, 1].
at::Tensor LineWeights(const at::Tensor& z) {
  const at::Tensor norms = z.flatten(1).to(at::kDouble).norm(2, 1).clamp_min(kNormMin);
  return norms.reciprocal().repeat_interleave(z.numel() / (z.size(0) * z.size(1))).unsqueeze(1);
}

GridTruth FirstRows(const GridTruth& all) {
  const int64_t pixels = all.start.numel() / (all.start.size(0) * all.start.size(1));
  const int64_t rows = std::clamp<int64_t>(kLinesMax / pixels, 1, all.start.size(0));
  GridTruth first = all;
  first.start = all.start.narrow(0, 0, rows);
  first.states.clear();
  for (const at::Tensor& state : all.states) first.states.push_back(state.narrow(0, 0, rows));
  if (all.condition.defined()) first.condition = all.condition.narrow(0, 0, rows);
  return first;
}

struct Regression {
  std::vector<at::Tensor> coefficients;  // one for each feature
  at::Tensor offset;                     // [C]
  at::Tensor guess;                      // [lines, C]
};

// Minimises sum over lines of |w (target - sum_f coefficient_f feature_f - offset)|^2. Features and
// target are [lines, C].
Regression Regress(Coefficients kind, const std::vector<at::Tensor>& features,
                   const at::Tensor& target, const at::Tensor& weights) {
  // Without the weighted means the offset drops out of the normal equations.
  const at::Tensor squares = weights.square();
  const auto mean = [&](const at::Tensor& x) { return (squares * x).sum(0) / squares.sum(); };
  const auto centred = [&](const at::Tensor& x) { return weights * (x - mean(x)); };
  std::vector<at::Tensor> columns;
  for (const at::Tensor& feature : features) columns.push_back(centred(feature));
  const int64_t count = static_cast<int64_t>(columns.size()), channels = target.size(1);
  // [problems, lines, unknowns] and [problems, lines, targets]
  at::Tensor x, y = centred(target);
  if (kind == Coefficients::kMap) {
    x = at::cat(columns, 1).unsqueeze(0);
    y = y.unsqueeze(0);
  } else {
    x = at::stack(columns, 2).transpose(0, 1);
    y = y.t().unsqueeze(2);
    if (kind == Coefficients::kScalar) {
      x = x.reshape({1, -1, count});
      y = y.reshape({1, -1, 1});
    }
  }
  const at::Tensor transposed = x.transpose(1, 2), gram = at::matmul(transposed, x);
  const at::Tensor solution =
      at::matmul(at::linalg_pinv(gram, kRankTolerance, /*hermitian=*/true), transposed.matmul(y));
  Regression result{.offset = mean(target), .guess = at::zeros_like(target)};
  for (int64_t f = 0; f < count; ++f) {
    const at::Tensor& feature = features[static_cast<size_t>(f)];
    at::Tensor coefficient, product;
    if (kind == Coefficients::kMap) {
      coefficient = solution[0].narrow(0, f * channels, channels).t();
      product = feature.matmul(coefficient.t());
    } else {
      coefficient = solution.select(1, f).squeeze(1);  // [C], or [1] where all share it
      product = feature * coefficient;
      if (kind == Coefficients::kScalar) coefficient = coefficient[0];
    }
    result.offset = result.offset - mean(product);
    result.guess = result.guess + product;
    result.coefficients.push_back(coefficient);
  }
  result.guess = result.guess + result.offset;
  return result;
}

}  // namespace

std::vector<NodeGrid> FurtherGrids(const Net& field, const Shape& state_shape) {
  if (!field.uses_depth() || state_shape.size() > 1) return {};
  const auto sway = [](double u) { return u + 1.7 * (std::cos(std::numbers::pi * u / 2) - 1 + u); };
  const auto square = [](double u) { return u * (2 - u); };
  return {{"sway(1.7)", sway}, {"u (2 - u)", square}};
}

TensorMap LeastSquaresTensors(const TensorSpace& space, const TableSpec& spec,
                              const GridTruth& all) {
  const at::NoGradGuard no_grad;
  const GridTruth truth = FirstRows(all);
  const auto rows = static_cast<size_t>(truth.start.size(0));
  const at::Tensor first = Lines(truth.start);
  const at::Tensor identity = spec.coefficients == Coefficients::kMap
                                  ? at::eye(first.size(1), first.options())
                                  : at::ones({}, first.options());
  Columns columns;
  std::vector<at::Tensor> features = {first};
  at::Tensor point = truth.start;
  for (int i = 0; i < spec.evaluations; ++i) {
    const double node = DepthAt(truth.span, i, spec.evaluations, truth.grid.share);
    columns.nodes.push_back(node);
    features.push_back(
        Lines(space.Field(PerRow(rows, node), space.Start(point, truth.condition)).z));
    const at::Tensor& target = truth.states[static_cast<size_t>(i)];
    const Regression fit =
        Regress(spec.coefficients, features, Lines(target) - first, LineWeights(target));
    columns.state.push_back(fit.coefficients.front() + identity);
    columns.slopes.insert(columns.slopes.end(), fit.coefficients.begin() + 1,
                          fit.coefficients.end());
    columns.offset.push_back(fit.offset);
    point = FromLines(first + fit.guess, truth.start);
  }
  return Packed(spec, columns);
}

}  // namespace hyperserve
