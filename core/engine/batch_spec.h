// A BatchSpec holds everything that rows must have in common to share a batch, where each
// evaluation of f takes all rows at once. Values that each row has for itself (steps, tolerances,
// data, seed) stand in Segment (engine.h). Plain data; the model and the correction are shared and
// immutable. CheckSpec (choose_engine.h) says which specs are valid.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "core/io/tensor.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "core/plan/condition_knots.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "core/plan/step_control.h"
#include "core/plan/step_grid.h"

namespace hyperserve {

// The kind of a row's data.
enum class Entry {
  kInput,  // the model's input, before preprocessing: U8 (divided by 255) or F32 (F64 where the
           // tier is double)
  kState,  // z(s0) itself: F32 or F64
  kNoise,  // standard normal, Philox of (seed, first_row + i, dimension): no data
};

// How the log-density of a flow is computed.
enum class LogDensity {
  kNone,
  // d(log p)/ds = -tr(df/dz) (Chen et al. 2018, "Neural Ordinary Differential Equations"), with the
  // exact trace by forward-mode tangents. Solved beside the state by the plan's method and under
  // its error control. Classical plans only.
  kDivergence,
  // log|det| of the Jacobian of each discrete step, by tangents. This is the exact log-density of
  // the discrete map. Fixed plans only, classical or hypersolved. Computed in double also in tier
  // exact.
  kStepMap,
  // As kDivergence, with the trace estimated (Hutchinson 1990; Grathwohl et al. 2019, FFJORD): the
  // mean of v^T df/dz v over random signs v, which a row keeps for its whole solve. Each probe's
  // integral is an estimate of its own, so that their spread is a standard error.
  kHutchinson,
};
// One probe has no spread, so two are the least. Each costs a pass of f's multiply-accumulates, so
// the most cost what the exact trace of kTangentsMax dimensions does.
inline constexpr int64_t kProbesMin = 2, kProbesMax = 64;  // of a row, for kHutchinson

// Which derivative of the discrete map is computed beside its end. It is that of the steps that the
// plan takes, exact up to rounding. Fixed plans only, from states or from inputs that are floats.
enum class Derivative {
  kNone,
  // A vector-Jacobian product: z(s1)'s cotangent pulled back to start and condition (its values at
  // knots). With a log-density, from data to noise only, the gradient of log p instead.
  kVjp,
  // A Jacobian-vector product: the tangents of start and condition pushed to z(s1).
  // Without a log-density. In all of them weights of guidance are constants.
  kJvp,
};

// Whoever starts a run gives the spec by reference; the run keeps a copy, and so keeps the model
// and the correction alive.
struct BatchSpec {
  std::shared_ptr<const Model> model;
  std::shared_ptr<const Hypersolver> correction;  // null: classical
  MethodChoice method;
  Stepping stepping = Stepping::kFixed;
  StepGrid grid = {};  // of fixed steps: where the steps of each row end
  Tier tier = Tier::kExact;
  Entry entry = Entry::kInput;
  Dtype dtype = Dtype::kF32;  // of the rows' data; ignored for kNoise
  // Of this solve. A flow solved against its field runs -f(s0 + s1 - s, z).
  Direction direction = Direction::kForward;
  std::optional<std::array<double, 2>> span;  // [s0, s1] on the solver's clock; absent: the model's
  std::vector<double> save_at;  // strictly increasing depths within the span; empty: none
  bool want_state = true;       // z(s1)
  bool want_depth = false;      // the depth at which each row ended
  bool want_outputs = false;    // y = h_y(z(s1)); where the model has a head
  LogDensity log_density = LogDensity::kNone;  // flows only
  int64_t probes = 0;                          // of each row, for kHutchinson; else 0
  Derivative derivative = Derivative::kNone;
  bool want_distance = false;  // of each row (core/ode/solver_table.h); learned solvers only
  // The weights w that each row brings, of the field f(none) + w (f(condition) - f(none))
  // (classifier-free guidance, Ho and Salimans 2022). 0: there is no guidance; 1: one for the whole
  // solve; more: one for each step of a fixed plan. Classical plans only.
  int64_t guidance = 0;
  // Where the condition changes with the depth: rows bring its values at these knots. Steps end at
  // each knot within the span. Classical one-step plans only.
  ConditionKnots knots = {};

  // Equal specs may share a batch. Models and corrections are compared by address.
  bool operator==(const BatchSpec&) const = default;
};

// The evaluations of f that one slope takes under this weight: of f(condition), of f(none), or of
// both.
inline int64_t GuidedEvaluations(double weight) { return weight == 0 || weight == 1 ? 1 : 2; }

}  // namespace hyperserve
