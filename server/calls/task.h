// What a call does with each of its rows, under any plan.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/engine/batch_spec.h"
#include "core/model/spec/spec.h"
#include "core/plan/condition_knots.h"

namespace hyperserve {

// Plain data, made by Prepare of the call; ResolvePlan chooses a plan that can do it.
struct Task {
  Direction direction = Direction::kForward;
  std::array<double, 2> span = {0, 1};  // on the solver's own clock
  Entry entry = Entry::kInput;
  std::vector<double> save_at;  // strictly increasing depths within the span
  bool log_density = false;     // of each row, beside the state
  int64_t probes = 0;           // by which it is estimated; 0: it is exact
  Derivative derivative = Derivative::kNone;
  bool want_state = true;        // z(s1)
  bool want_depth = false;       // the depth at which each row ended
  bool want_outputs = false;     // y = h_y(z(s1))
  bool want_bound = false;       // of each row's error
  int64_t rows = 1;              // of the request, unchecked: a plan is chosen by their time
  ConditionKnots knots = {};     // of a condition that changes with the depth
  int64_t guidance = 0;          // weights of guidance that each row brings, as BatchSpec's
  double slope_evaluations = 1;  // of f that one slope takes under them, on the average
};

}  // namespace hyperserve
