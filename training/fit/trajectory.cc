#include "training/fit/trajectory.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "core/base/status.h"
#include "core/engine/batch_spec.h"
#include "core/engine/engine.h"
#include "core/engine/readable/batch_rows.h"
#include "core/model/spec/spec.h"
#include "core/ode/solve_options.h"
#include "core/ode/solve_result.h"
#include "core/ode/solver.h"
#include "core/ode/space.h"
#include "core/ode/step.h"
#include "core/ode/tableau.h"
#include "core/plan/row_status.h"
#include "core/plan/step_control.h"
#include "programs/progress.h"
#include "programs/stop.h"

namespace hyperserve {
namespace {

constexpr int64_t kMaxTrueSteps = 10000;
constexpr int64_t kEvaluationsAtOnce = 10;  // between two checks for a request to stop
// Of all rows that are solved together. On a CPU some hundred images, and flows whole; on a GPU a
// thousand images, 128 MB a state, since what a step costs its host is the same for any number of
// rows.
constexpr int64_t kNumbersAtOnceCpu = 1 << 22, kNumbersAtOnceGpu = 1 << 25;

PerRow Same(int64_t rows, double value) { return PerRow(static_cast<size_t>(rows), value); }

absl::StatusOr<SolveResult<TensorSpace::State>> SolveTruly(const TensorSpace& space,
                                                           const Cohort& rows,
                                                           TensorSpace::State start,
                                                           const SolveOptions& options) {
  BatchSolver<TensorSpace> solver(&space, options);
  solver.Admit(std::move(start), {&rows, 1});
  while (!solver.Advance(kEvaluationsAtOnce)) {
    if (StopRequested()) return Stopped();
  }
  SolveResult<TensorSpace::State> result = InOrder(space, solver.TakeFinished());
  for (const RowStatus status : result.status) {
    if (status != RowStatus::kConverged) {
      return absl::InternalError(
          absl::StrCat("a true solution ended in ", std::string(RowStatusName(status))));
    }
  }
  return result;
}

}  // namespace

TensorSpace::Options SpaceOptions(const ModelSpec& spec, Direction direction, Net field) {
  TensorSpace::Options options{.field = std::move(field)};
  if (direction != Direction::kForward && direction != spec.direction) {
    options.reflected_clock_sum = spec.span[0] + spec.span[1];
  }
  return options;
}

at::Tensor ConditionOf(const SolveInputs& inputs, at::Device device) {
  if (inputs.condition.shape.empty()) return {};
  return TensorFromView(inputs.condition.view()).to(device);
}

absl::StatusOr<at::Tensor> StemInput(const std::shared_ptr<const Model>& model,
                                     const SolveInputs& inputs, at::Device device) {
  const BatchSpec spec{.model = model, .entry = inputs.entry, .dtype = inputs.rows.dtype};
  const Segment all = inputs.segment();
  HS_RETURN_IF_ERROR(CheckSegment(spec, all));
  return ReadRows(spec, {&all, 1}, at::kFloat, device);
}

absl::StatusOr<at::Tensor> InitialState(const std::shared_ptr<const Model>& model,
                                        const SolveInputs& inputs, at::Device device) {
  const at::NoGradGuard no_grad;
  HS_ASSIGN_OR_RETURN(at::Tensor rows, StemInput(model, inputs, device));
  if (inputs.entry == Entry::kState) return rows;
  const Net stem = model->weights().Get("stem", device, at::kFloat);
  const at::Tensor depth = at::full({rows.size(0)}, model->spec().span[0], rows.options());
  return stem.Apply(rows, depth);
}

Trajectory Follow(const TensorSpace& space, const FixedPlan& plan,
                  const std::array<double, 2>& span, TensorSpace::State start) {
  const Tableau tableau = TableauFor(plan.method);
  const int64_t rows = space.Rows(start);
  const double eps = (span[1] - span[0]) / plan.steps;
  Trajectory trajectory{.end = std::move(start), .first_slopes = {}, .later_stages = {}};
  for (int k = 0; k < plan.steps; ++k) {
    auto step = ClassicalStep(space, tableau, Same(rows, span[0] + k * eps), Same(rows, eps),
                              trajectory.end);
    trajectory.first_slopes.push_back(step.slopes[0].z);
    for (size_t i = 1; i < step.slopes.size(); ++i) {
      trajectory.later_stages.push_back(
          {.offset = tableau.c[i] * eps, .slope = step.slopes[i].z, .first = step.slopes[0].z});
    }
    trajectory.end = std::move(step.z_next);
  }
  return trajectory;
}

absl::StatusOr<std::vector<at::Tensor>> TrueStates(
    const TensorSpace& space, const AdaptivePlan& plan, const std::array<double, 2>& span,
    const std::vector<double>& depths, const at::Tensor& start, const at::Tensor& condition) {
  const at::NoGradGuard no_grad;
  const SolveOptions options{.tableau = TableauFor(plan.method),
                             .stepping = Stepping::kErrorControlled,
                             .s0 = span[0],
                             .s1 = span[1],
                             .save_at = depths};
  HS_RETURN_IF_ERROR(ValidateSolve(options));
  const ErrorControl control{.rtol = plan.rtol, .atol = plan.atol, .max_steps = kMaxTrueSteps};
  const int64_t rows = start.size(0);
  const int64_t numbers = start.is_cuda() ? kNumbersAtOnceGpu : kNumbersAtOnceCpu;
  const int64_t at_once = std::clamp<int64_t>(numbers * rows / start.numel(), 1, rows);
  std::vector<at::Tensor> states;
  for (size_t i = 0; i < depths.size(); ++i) states.push_back(at::empty_like(start));
  Progress progress("true solutions", rows, "rows");
  for (int64_t first = 0; first < rows; first += at_once) {
    const int64_t count = std::min(at_once, rows - first);
    const at::Tensor conditions =
        condition.defined() ? condition.narrow(0, first, count) : condition;
    HS_ASSIGN_OR_RETURN(
        auto result, SolveTruly(space, {.rows = count, .control = control},
                                space.Start(start.narrow(0, first, count), conditions), options));
    for (size_t i = 0; i < states.size(); ++i) {
      states[i].narrow(0, first, count).copy_(result.saved[i].z);
    }
    progress.Advance(count);
  }
  return states;
}

}  // namespace hyperserve
