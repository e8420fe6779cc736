// What rows have in common that may share a batch: every evaluation of f takes all of its rows at
// once. What is each row's own (steps, tolerances, data, seed) stands in Segment (engine.h).
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "core/io/tensor.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "core/plan/step_control.h"

namespace hyperserve {

// Where a row starts.
enum class Entry {
  kInput,  // the model's input, before preprocessing: U8 (divided by 255) or F32 (F64 where the
           // tier is double)
  kState,  // z(s0) itself: F32 or F64
  kNoise,  // standard normal, Philox of (seed, first_row + i, dimension): no data
};

// How a flow's log-density is carried. Served: kDivergence for classical plans.
enum class LogDensity {
  kNone,
  // d(log p)/ds = -tr(df/dz), exact trace by forward-mode tangents, solved by the plan's own method
  // beside the state (and under its error control). Classical plans only.
  kDivergence,
  // log|det| of the Jacobian of each discrete step, by tangents: the exact log-density of the
  // discrete map. Fixed plans, classical or hypersolved. Computed in double in every tier.
  kStepMap,
};

struct BatchSpec {
  std::shared_ptr<const Model> model;
  std::shared_ptr<const Hypersolver> correction;  // null: classical
  MethodChoice method;
  Stepping stepping = Stepping::kFixed;
  Tier tier = Tier::kExact;
  Entry entry = Entry::kInput;
  Dtype dtype = Dtype::kF32;  // of the rows' data; kNoise: not used
  Direction direction =
      Direction::kForward;  // flows: the direction of this solve, which may be against the field
  std::optional<std::array<double, 2>> span;  // the solver's own clock; the model's where absent
  std::vector<double> save_at;  // strictly increasing depths within the span; empty: none
  bool want_state = true;       // z(s1)
  bool want_outputs = false;    // y = h_y(z(s1)) (classifiers)
  LogDensity log_density = LogDensity::kNone;  // flows only

  bool operator==(const BatchSpec&) const = default;
};

}  // namespace hyperserve
