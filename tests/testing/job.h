// What a test asks of an engine in one value: what rows have in common, and the plan.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "core/engine/device_runtime.h"
#include "core/plan/plan.h"

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

struct Job {
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
};

inline BatchSpec SpecOf(const Job& job, Dtype dtype = Dtype::kF64) {
  BatchSpec spec{.model = job.model,
                 .correction = job.correction,
                 .tier = job.tier,
                 .entry = job.entry,
                 .dtype = job.entry == Entry::kNoise ? Dtype::kF32 : dtype,
                 .direction = job.direction,
                 .span = job.span,
                 .save_at = job.save_at,
                 .want_outputs = job.want_outputs,
                 .log_density = job.log_density};
  SetPlan(job.plan, spec);
  return spec;
}

inline StepControl ControlOf(const Job& job) { return ControlOf(job.plan, job.max_steps); }

inline absl::StatusOr<BatchResult> SolveJob(DeviceRuntime& runtime, const Job& job,
                                            const TensorView& rows) {
  return SolveAlone(runtime, SpecOf(job, rows.dtype), job.plan,
                    {.rows = rows.shape.at(0), .data = rows, .control = ControlOf(job)});
}

}  // namespace hyperserve
