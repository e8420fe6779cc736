// Conditions of rows as a slope needs them: at a depth, and for both halves of a guided slope.
// Private to tensor_space.cc. All throw as LibTorch does.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/engine/batch_spec.h"
#include "core/engine/readable/row_numbers.h"
#include "core/ode/space.h"
#include "core/plan/condition_knots.h"

namespace hyperserve {

// The numbers as I64 on the device of `like`, for index_select.
inline at::Tensor IndexOn(const std::vector<int64_t>& indices, const at::Tensor& like) {
  return at::tensor(indices, at::kLong).to(like.device());
}

// The conditions [B, features] at these depths, from their values at the knots.
inline at::Tensor ConditionAt(const ConditionKnots& knots, const at::Tensor& values,
                              const PerRow& depth) {
  if (knots.empty()) return values;
  const auto count = static_cast<int64_t>(knots.depths.size());
  const at::Tensor by_knot = values.view({values.size(0) * count, -1});
  at::Tensor sum;
  for (int64_t tap = 0; tap < 3; ++tap) {
    std::vector<int64_t> places;
    PerRow weights;
    for (size_t row = 0; row < depth.size(); ++row) {
      const KnotWeights at = WeightsAt(knots, depth[row]);
      weights.push_back(at.weights[static_cast<size_t>(tap)]);
      // A third knot that is not there has the weight 0.
      places.push_back(static_cast<int64_t>(row) * count + std::min(at.first + tap, count - 1));
    }
    const at::Tensor rows = by_knot.index_select(0, IndexOn(places, values));
    const at::Tensor part = rows * OverRows(RowTensor(weights, values.options()), rows, 0);
    sum = sum.defined() ? sum + part : part;
  }
  return sum;
}

// The same of their tangents [T, B, knots * features]: a condition is linear in its values.
inline at::Tensor ConditionTangentsAt(const ConditionKnots& knots, const at::Tensor& tangents,
                                      const PerRow& depth) {
  if (knots.empty() || !tangents.defined()) return tangents;
  std::vector<at::Tensor> along;
  for (int64_t t = 0; t < tangents.size(0); ++t) {
    along.push_back(ConditionAt(knots, tangents[t], depth));
  }
  return at::stack(along, 0);
}

// The batch of a guided slope. It has the rows with f(condition) first, then those with f(none).
struct GuidedHalves {
  PerRow weights;             // of each row
  std::vector<int64_t> rows;  // of the batch: which row each place holds
  int64_t given_count = 0;    // places with f(condition)
  // The places of each row's halves; the same one twice where it has one half only.
  std::vector<int64_t> given, none;
};

// `guidance` is that of a state: F64 [B, 1 + weights] on the CPU, the number of steps that the row
// has made first.
inline GuidedHalves HalvesOf(const at::Tensor& guidance) {
  const auto numbers = guidance.accessor<double, 2>();
  const int64_t last = numbers.size(1) - 2;
  GuidedHalves halves;
  for (int64_t row = 0; row < numbers.size(0); ++row) {
    const auto step = static_cast<int64_t>(numbers[row][0]);
    halves.weights.push_back(numbers[row][1 + std::min(step, last)]);
    halves.given.push_back(static_cast<int64_t>(halves.rows.size()));
    if (halves.weights.back() != 0) halves.rows.push_back(row);
  }
  halves.given_count = static_cast<int64_t>(halves.rows.size());
  halves.none = halves.given;
  for (size_t row = 0; row < halves.weights.size(); ++row) {
    if (halves.weights[row] == 1) continue;
    halves.none[row] = static_cast<int64_t>(halves.rows.size());
    if (halves.weights[row] == 0) halves.given[row] = halves.none[row];
    halves.rows.push_back(static_cast<int64_t>(row));
  }
  return halves;
}

// none + w (given - none) of each row, from the slopes of the batch; rows with one half get that
// half's bits. Undefined where `slopes` is.
inline at::Tensor Weighed(const GuidedHalves& halves, const at::Tensor& slopes, int64_t row_dim) {
  if (!slopes.defined()) return {};
  const at::Tensor at_given = IndexOn(halves.given, slopes), at_none = IndexOn(halves.none, slopes);
  const at::Tensor given = slopes.index_select(row_dim, at_given);
  const at::Tensor none = slopes.index_select(row_dim, at_none);
  const at::Tensor weight = RowTensor(halves.weights, slopes.options());
  const at::Tensor two = OverRows(at_given.ne(at_none), given, row_dim);
  return at::where(two, none + OverRows(weight, given, row_dim) * (given - none), given);
}

}  // namespace hyperserve
