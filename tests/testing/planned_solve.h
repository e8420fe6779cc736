// A solve that a test asks of an engine, as one value: the spec of the rows and the plan.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "core/engine/batch_spec.h"
#include "core/engine/device_runtime.h"
#include "core/engine/engine.h"
#include "core/io/tensor.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "core/plan/condition_knots.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "core/plan/step_control.h"

namespace hyperserve {

inline FixedPlan Fixed(Method method, int steps) {
  return {.method = {.method = method}, .steps = steps};
}
inline FixedPlan Hypersolved(Method method, int steps) {
  return {.method = {.method = method}, .steps = steps, .hypersolved = true};
}
inline AdaptivePlan Dopri5(double tolerance) {
  return {.method = {.method = Method::kDopri5}, .rtol = tolerance, .atol = tolerance};
}

struct PlannedSolve {
  std::shared_ptr<const Model> model;
  std::shared_ptr<const Hypersolver> correction;
  StepPlan plan;
  Tier tier = Tier::kExact;
  Entry entry = Entry::kInput;
  Direction direction = Direction::kForward;
  std::optional<std::array<double, 2>> span;
  std::vector<double> save_at;
  int64_t max_steps = kMaxStepsDefault;
  bool want_outputs = false;
  LogDensity log_density = LogDensity::kNone;
  TensorView condition = {};  // of the rows, or one for all
  Derivative derivative = Derivative::kNone;
  TensorView vector = {}, condition_vector = {};  // as Segment's
  bool want_distance = false;
  TensorView guidance = {};  // F64, of the rows, or one for all
  ConditionKnots knots = {};
};

inline BatchSpec SpecOf(const PlannedSolve& solve, Dtype dtype = Dtype::kF64) {
  BatchSpec spec{.model = solve.model,
                 .correction = solve.correction,
                 .tier = solve.tier,
                 .entry = solve.entry,
                 .dtype = solve.entry == Entry::kNoise ? Dtype::kF32 : dtype,
                 .direction = solve.direction,
                 .span = solve.span,
                 .save_at = solve.save_at,
                 .want_outputs = solve.want_outputs,
                 .log_density = solve.log_density,
                 .derivative = solve.derivative,
                 .want_distance = solve.want_distance,
                 .guidance = solve.guidance.shape.empty() ? 0 : solve.guidance.shape[1],
                 .knots = solve.knots};
  SetPlan(solve.plan, spec);
  return spec;
}

inline StepControl ControlOf(const PlannedSolve& solve) {
  return ControlOf(solve.plan, solve.max_steps);
}

inline absl::StatusOr<BatchResult> Solve(DeviceRuntime& runtime, const PlannedSolve& solve,
                                         const TensorView& rows) {
  return SolveAlone(runtime, SpecOf(solve, rows.dtype), solve.plan,
                    {.rows = rows.shape.at(0),
                     .data = rows,
                     .condition = solve.condition,
                     .guidance = solve.guidance,
                     .vector = solve.vector,
                     .condition_vector = solve.condition_vector,
                     .control = ControlOf(solve)});
}

}  // namespace hyperserve
