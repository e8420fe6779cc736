// LibTorch tensors as a StateSpace: what the readable engine solves over, and what the trainer
// differentiates through. Immutable; every operation is a differentiable tensor operation except
// Finite, ErrorNorms and the determinant of AfterStep, which give numbers.
//
// What happens to a row depends on that row only: sums and products are rounded one by one (never
// fused), whatever has one value a row is plain C++ on doubles, and the nets see as many rows as
// RowPadding says (see row_padding.h).
//
// Cost: an evaluation of a net with T tangents is 1 + T passes of its multiply-accumulates (a
// tangent's pass has no bias). passes() says how many.
#pragma once

#include <ATen/ATen.h>

#include <optional>
#include <span>
#include <vector>

#include "core/engine/batch_spec.h"
#include "core/engine/readable/row_padding.h"
#include "core/model/net/bound_layer.h"
#include "core/model/net/net.h"
#include "core/model/spec/spec.h"
#include "core/ode/space.h"

namespace hyperserve {

class TensorSpace {
 public:
  struct Options {
    Net field;
    // Solve -f(clock_sum - s, z) instead of f(s, z); clock_sum is s0 + s1 of the model's span.
    // Absent: the field's own direction.
    std::optional<double> reflected_clock_sum = std::nullopt;
    std::optional<Net> correction = std::nullopt;
    std::vector<CorrectionInput> correction_inputs = {};
    LogDensity log_density = LogDensity::kNone;
    RowPadding padding = {};
  };

  struct State {
    at::Tensor z;  // [B, ...]
    // kStepMap: [T, B, ...], dz/d(start of the step) along each of the T directions of the state.
    at::Tensor tangents;
    // F64 [B]. kDivergence: integral of tr(dF/dz) of the field F that is solved. kStepMap: log|det|
    // of the map from the start to here.
    at::Tensor log_density;
  };

  explicit TensorSpace(Options options);

  // z with whatever the log-density needs beside it. z has the dtype and device of the nets.
  State Start(at::Tensor z) const;
  // Multiply-accumulates of one evaluation of a net, as a multiple of the net's own.
  int64_t passes(const State& z) const;
  // How many rows the nets see for so many.
  int64_t padded(int64_t rows) const { return options_.padding.Rows(rows); }

  // StateSpace and CorrectedSpace; see core/ode/space.h.
  int64_t Rows(const State& z) const { return z.z.size(0); }
  State Field(const PerRow& s, const State& z) const;
  State Combine(const State& z, std::span<const Term<State>> terms) const;
  State Where(const std::vector<bool>& mask, const State& yes, const State& no) const;
  State Gather(const State& z, const std::vector<int64_t>& indices) const;
  State Join(const State& a, const State& b) const;
  std::vector<bool> Finite(const State& z) const;
  // The log-density counts as one more number of the row.
  PerRow ErrorNorms(const State& error, const State& z0, const State& z1, const PerRow& rtol,
                    const PerRow& atol) const;
  State Zero(const State& z) const;
  void AfterStep(State& z) const;
  State Correction(const PerRow& eps, const PerRow& s, const State& z,
                   std::span<const State> slopes, const State& z_first) const;

 private:
  Dual Evaluate(const Net& net, const Dual& x, const PerRow& depth) const;
  Options options_;
  bool uses_first_state_;
};

static_assert(CorrectedSpace<TensorSpace>);

}  // namespace hyperserve
