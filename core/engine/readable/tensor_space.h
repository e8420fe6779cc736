// LibTorch tensors as a StateSpace. The readable engine solves over it, and the trainer
// differentiates through it. Immutable, so several threads may use one. Every operation is a
// differentiable tensor operation, except Finite and ErrorNorms; the determinant in AfterStep has a
// first derivative only. All throw as LibTorch does.
//
// The result of a row depends on that row only: sums and products are rounded one by one (never
// fused), numbers with one value for each row are computed in plain C++ on doubles, and RowPadding
// (row_padding.h) decides how many rows the nets see.
//
// Cost: evaluating a net with T tangents takes 1 + T passes of its multiply-accumulates. passes()
// returns this factor.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <optional>
#include <span>
#include <vector>

#include "core/engine/batch_spec.h"
#include "core/engine/readable/row_padding.h"
#include "core/model/net/bound_layer.h"
#include "core/model/net/net.h"
#include "core/model/net/table.h"
#include "core/model/spec/spec.h"
#include "core/ode/solver_table.h"
#include "core/ode/space.h"
#include "core/plan/condition_knots.h"

namespace hyperserve {

class TensorSpace {
 public:
  // g at the end of a table.
  struct ReadoutNet {
    Net net;
    std::vector<CorrectionInput> inputs;
  };

  // What is fixed for all rows of a space. Nets share their tensors with the model's weights, so a
  // copy is cheap.
  struct Options {
    Net field;
    // If set: solve -f(clock_sum - s, z) instead of f(s, z), with clock_sum = s0 + s1 of the
    // model's span. Absent: the field's own direction.
    std::optional<double> reflected_clock_sum = std::nullopt;
    std::optional<Net> correction = std::nullopt;
    std::vector<CorrectionInput> correction_inputs = {};
    LogDensity log_density = LogDensity::kNone;
    std::map<int, ReadoutNet> readouts = {};  // by number of evaluations
    at::Tensor no_condition = {};             // [1, features]; guided states only
    ConditionKnots knots = {};  // of conditions that change with the depth of the field
    RowPadding padding = {};
  };

  // Rows side by side; a tensor that a space does not use is undefined in every state of it. Copies
  // share tensors, and no function changes one in place, but for AfterStep.
  struct State {
    at::Tensor z;  // [B, ...]
    // Without a log-density: [T, B, ...], derivatives along T directions, or undefined.
    // kStepMap: [T, B, ...], the derivatives of z by each of the T numbers of the state at the
    // start of the step. With the input state_0: at the start of the solve.
    at::Tensor tangents;
    // F64 [B]. kDivergence: the integral of tr(dF/dz), with F the field that is solved. kStepMap:
    // log|det| of the map from the start of the solve to z. kHutchinson: [B, T], an estimate of the
    // first by each of the T probes.
    at::Tensor log_density;
    // [B, features], or with knots its values at them, [B, knots * features]; constant over the
    // solve; undefined in slopes and where the model has none.
    at::Tensor condition = {};
    at::Tensor condition_tangents = {};  // [T, ...], T of the shape above; undefined: zeros
    // F64 [B, 1 + weights] on the CPU: the number of steps that the row has made, then its weights
    // of guidance, one for the solve or one for each step. Undefined in slopes and without
    // guidance.
    at::Tensor guidance = {};
    // kHutchinson: random signs, [B, T, ...]; undefined in slopes.
    at::Tensor probes = {};
  };

  explicit TensorSpace(Options options);

  const Options& options() const { return options_; }

  // Whether a step needs the tangents at its start, so that its derivative needs theirs.
  bool carries_tangents() const {
    return options_.log_density == LogDensity::kStepMap && uses_first_state_;
  }
  // Whether a step reads z(s0).
  bool uses_first_state() const { return uses_first_state_; }

  // The state at the start of a solve. z has the dtype and device of the nets, and so has the
  // condition of a conditional model, and so have the probes; guidance is F64 [B, weights] on the
  // CPU.
  State Start(at::Tensor z, at::Tensor condition = {}, const at::Tensor& guidance = {},
              at::Tensor probes = {}) const;
  // Passes of one evaluation of a net: 1 for the value, and 1 for each tangent.
  int64_t passes(const State& z) const;
  // The number of rows that the nets see, with padding. Not counted in MACs, which are those of a
  // row alone.
  int64_t padded(int64_t rows) const { return options_.padding.Rows(rows); }

  // StateSpace and CorrectedSpace; see core/ode/space.h.
  int64_t Rows(const State& z) const { return z.z.size(0); }
  // The slope has z, tangents and log-density; condition, guidance and probes are undefined in it,
  // and Combine keeps those of its first argument.
  State Field(const PerRow& s, const State& z) const;
  State Combine(const State& z, std::span<const Term<State>> terms) const;
  State Minus(const State& a, const State& b) const;
  State Where(const std::vector<bool>& mask, const State& yes, const State& no) const;
  State Gather(const State& z, const std::vector<int64_t>& indices) const;
  State Join(const State& a, const State& b) const;
  std::vector<bool> Finite(const State& z) const;
  // Of the state alone: the log-density is carried along and changes no step.
  PerRow ErrorNorms(const State& error, const State& z0, const State& z1, const PerRow& rtol,
                    const PerRow& atol) const;
  State Zero(const State& z) const;
  void AfterStep(State& z) const;
  State Correction(const PerRow& eps, const PerRow& s, const State& z,
                   std::span<const State> slopes, const State& z_first) const;

  // TableSpace; see core/ode/solver_table.h. Coefficients that are not numbers are for spaces whose
  // log-density does not change between the steps (kNone, kStepMap).
  using Coefficient = TableCoefficient;
  State Scaled(const Coefficient& c, const State& z) const;
  State AddScaled(const State& z, const Coefficient& c, const State& k) const;
  State Shifted(const State& z, const Coefficient& c) const;
  bool HasReadout(int evaluations) const { return options_.readouts.contains(evaluations); }
  State Readout(int evaluations, const State& x_0, const State& x_n,
                std::span<const State> slopes) const;

 private:
  Dual Multiplied(const Coefficient& c, const State& z) const;
  // `of` has the condition of the rows, `depth` is on the field's clock.
  Dual Evaluate(const Net& net, const Dual& x, const PerRow& depth, const State& of) const;
  // f(none) + w (f(condition) - f(none)) of each row. Rows with a weight of 0 or 1 take one half;
  // all halves are rows of one batch.
  Dual Guided(const Dual& x, const PerRow& depth, const State& of) const;
  Options options_;
  bool uses_first_state_;
};

static_assert(CorrectedSpace<TensorSpace> && TableSpace<TensorSpace>);

}  // namespace hyperserve
