#include "core/engine/gradient/plan_tape.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/engine/batch_spec.h"
#include "core/engine/choose_engine.h"
#include "core/engine/readable/batch_rows.h"
#include "core/engine/readable/solve_setup.h"
#include "core/engine/readable/tensor_space.h"
#include "core/model/net/model.h"
#include "core/ode/controller.h"
#include "core/ode/rows.h"
#include "core/ode/solve_options.h"
#include "core/ode/solver_table.h"
#include "core/ode/space.h"
#include "core/ode/step.h"
#include "core/ode/step_ends.h"
#include "core/plan/method.h"
#include "core/plan/step_control.h"

namespace hyperserve {
namespace {

using State = TensorSpace::State;

at::Tensor Leaf(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.detach().requires_grad_() : tensor;
}

// The sum of two cotangents, of which an undefined one is zero.
at::Tensor Sum(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined()) return b;
  return b.defined() ? a + b : a;
}

State Detached(const State& state) {
  const auto detach = [](const at::Tensor& t) { return t.defined() ? t.detach() : t; };
  return {.z = detach(state.z),
          .tangents = detach(state.tangents),
          .log_density = detach(state.log_density),
          .condition = detach(state.condition),
          .guidance = state.guidance};
}

// The graph of one step: what is differentiated, by what, along which cotangents.
struct Pull {
  std::vector<at::Tensor> outputs, cotangents, inputs;

  void From(const at::Tensor& output, const at::Tensor& cotangent) {
    if (!output.defined() || !cotangent.defined() || !output.requires_grad()) return;
    outputs.push_back(output);
    cotangents.push_back(cotangent);
  }
  // Zero, undefined, where nothing depends on an input. In the order of the inputs.
  std::vector<at::Tensor> Products() const {
    if (outputs.empty()) return std::vector<at::Tensor>(inputs.size());
    return torch::autograd::grad(outputs, inputs, cotangents, /*retain_graph=*/false,
                                 /*create_graph=*/false, /*allow_unused=*/true);
  }
};

}  // namespace

PlanTape::PlanTape(const BatchSpec* spec, const SolveSetup* setup, TapeStart start)
    : spec_(*spec),
      setup_(*setup),
      options_(OptionsOf(*spec)),
      cotangent_(std::move(start.cotangent)) {
  if (RunsFromTable(spec_.method.method)) {
    table_ = TableFor(spec_, start.steps, start.rows.device());
  } else {
    PlaceSteps(start.steps);
  }
  at::Tensor z0 = start.rows;
  if (spec_.entry == Entry::kInput && !setup_.stem.net.empty()) {
    const c10::AutoGradMode recording(true);
    inputs_ = Leaf(start.rows);
    z0 = mapped_ = setup_.stem.Apply(inputs_);
  }
  starts_.push_back(
      Detached(setup_.space.Start(z0.detach(), std::move(start.condition), start.guidance)));
  finite_.assign(static_cast<size_t>(z0.size(0)), true);
}

// The steps of BatchSolver: those of the plan, cut at each knot.
void PlanTape::PlaceSteps(int64_t steps) {
  Row row{.control = FixedSteps{.steps = static_cast<int>(steps)}, .s = options_.s0};
  while (options_.s0 < options_.s1 && row.step < steps) {
    const NextStep next = NextStepOf(options_, row);
    depths_.push_back(row.s);
    sizes_.push_back(next.eps);
    row.s = next.s_next;
    row.step += row.s == GridDepth(options_, row) ? 1 : 0;
  }
  steps_ = std::ssize(depths_);
}

bool PlanTape::Advance() {
  if (made_ < steps_) {
    StepToEnd();
  } else if (starts_.size() > 1) {
    if (!cotangents_.z.defined()) StartBack();
    StepBack();
  }
  if (made_ < steps_ || starts_.size() > 1) return false;
  if (!cotangents_.z.defined()) StartBack();  // a span without length
  return true;
}

PlanTape::Result PlanTape::Take() {
  result_.condition = cotangents_.condition;
  const State& start = starts_.front();
  if (start.condition.defined() && !result_.condition.defined()) {
    result_.condition = at::zeros_like(start.condition);
  }
  BackThroughInputs();
  result_.finite = std::move(finite_);
  return std::move(result_);
}

PlanTape::Counts PlanTape::counts(int64_t row) const {
  const bool corrected = spec_.correction != nullptr;
  Counts counts{.evaluations = EvaluationsUntil(steps_, row)};
  if (table_) {
    counts.corrections = setup_.space.HasReadout(table_->evaluations()) ? 1 : 0;
    return counts;
  }
  const int64_t again = std::max<int64_t>(0, steps_ - recorded_steps());
  counts.corrections = corrected ? steps_ : 0;
  counts.evaluations_again = EvaluationsUntil(again, row);
  counts.corrections_again = corrected ? again : 0;
  return counts;
}

int64_t PlanTape::step_slopes() const {
  return table_ ? table_->evaluations() : options_.tableau.solution_stages();
}

int64_t PlanTape::recorded_steps() const {
  return table_ ? 1 : std::max<int64_t>(1, kRecordedEvaluationsMax / step_slopes());
}

int64_t PlanTape::EvaluationsUntil(int64_t step, int64_t row) const {
  if (spec_.guidance == 0) return step * step_slopes();
  const at::Tensor guidance = starts_.front().guidance;
  const auto numbers = guidance.accessor<double, 2>();
  int64_t evaluations = 0;
  for (int64_t i = 0; i < step; ++i) {
    const int64_t weight = 1 + std::min(i, spec_.guidance - 1);
    evaluations += step_slopes() * GuidedEvaluations(numbers[row][weight]);
  }
  return evaluations;
}

State PlanTape::StepFrom(int64_t step, const State& from, const State& first) const {
  const TensorSpace& space = setup_.space;
  State to = [&] {
    if (table_) return SolveByTable(space, *table_, from);
    const auto rows = static_cast<size_t>(space.Rows(from)), at = static_cast<size_t>(step);
    const PerRow s(rows, depths_[at]), eps(rows, sizes_[at]);
    return spec_.correction != nullptr
               ? HypersolvedStep(space, options_.tableau, s, eps, from, first).z_next
               : ClassicalStep(space, options_.tableau, s, eps, from).z_next;
  }();
  space.AfterStep(to);
  return to;
}

PlanTape::Recorded PlanTape::Record(int64_t step) const {
  const c10::AutoGradMode recording(true);
  const State& start = starts_[static_cast<size_t>(step)];
  Recorded recorded{.from = start, .first = starts_.front(), .to = {}};
  State& from = recorded.from;
  from.z = Leaf(start.z);
  from.log_density = Leaf(start.log_density);
  from.condition = Leaf(start.condition);
  if (setup_.space.carries_tangents()) from.tangents = Leaf(start.tangents);
  if (setup_.space.uses_first_state()) recorded.first.z = Leaf(starts_.front().z);
  recorded.to = StepFrom(step, from, recorded.first);
  return recorded;
}

void PlanTape::StepToEnd() {
  const int64_t step = made_++;
  State to;
  if (steps_ - step <= recorded_steps()) {
    recorded_.push_back(Record(step));
    to = Detached(recorded_.back().to);
  } else {
    const c10::AutoGradMode recording(false);
    to = StepFrom(step, starts_.back(), starts_.front());
  }
  const std::vector<bool> finite = setup_.space.Finite(to);
  for (size_t i = 0; i < finite.size(); ++i) finite_[i] = finite_[i] && finite[i];
  starts_.push_back(std::move(to));
}

void PlanTape::StartBack() {
  const State& end = starts_.back();
  result_.end = end;
  if (spec_.log_density == LogDensity::kNone) {
    cotangents_.z = cotangent_;
    return;
  }
  // log p = log N(z(s1)) + the change of the log-density.
  cotangents_.z = end.z.neg();
  cotangents_.log_density = at::ones_like(end.log_density);
}

void PlanTape::StepBack() {
  starts_.pop_back();
  const auto step = static_cast<int64_t>(starts_.size()) - 1;
  if (recorded_.empty()) recorded_.push_back(Record(step));
  const Recorded recorded = std::move(recorded_.back());
  recorded_.pop_back();
  const bool carries = setup_.space.carries_tangents(), first = setup_.space.uses_first_state();
  const State& from = recorded.from;
  Pull pull;
  pull.From(recorded.to.z, cotangents_.z);
  pull.From(recorded.to.log_density, cotangents_.log_density);
  if (carries) pull.From(recorded.to.tangents, cotangents_.tangents);
  pull.inputs.push_back(from.z);
  if (from.log_density.defined()) pull.inputs.push_back(from.log_density);
  if (carries) pull.inputs.push_back(from.tangents);
  if (from.condition.defined()) pull.inputs.push_back(from.condition);
  if (first) pull.inputs.push_back(recorded.first.z);
  const std::vector<at::Tensor> products = pull.Products();
  auto next = products.begin();
  cotangents_.z = next->defined() ? *next : at::zeros_like(from.z);
  ++next;
  if (from.log_density.defined()) cotangents_.log_density = *next++;
  if (carries) cotangents_.tangents = *next++;
  if (from.condition.defined()) cotangents_.condition = Sum(cotangents_.condition, *next++);
  if (first) of_first_ = Sum(of_first_, *next++);
}

void PlanTape::BackThroughInputs() {
  at::Tensor product = Sum(cotangents_.z, of_first_);
  if (inputs_.defined()) {
    Pull pull{.outputs = {}, .cotangents = {}, .inputs = {inputs_}};
    pull.From(mapped_, product);
    product = pull.Products().front();
    if (!product.defined()) product = at::zeros_like(inputs_);
  }
  result_.rows = product.detach();
}

}  // namespace hyperserve
