#include "training/fit/truth.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <set>

#include "core/ode/space.h"
#include "core/ode/tableau.h"
#include "training/fit/loss.h"

namespace hyperserve {
namespace {

TensorSpace::State Selected(const TensorSpace::State& state, const at::Tensor& rows) {
  return {.z = state.z.index_select(0, rows), .tangents = {}, .log_density = {}};
}

}  // namespace

std::vector<int64_t> DrawRows(RandomStream& stream, int64_t rows, int64_t count) {
  std::vector<int64_t> drawn(static_cast<size_t>(count));
  for (int64_t& row : drawn) row = stream.Below(rows);
  return drawn;
}

at::Tensor IndexTensor(const std::vector<int64_t>& rows, const at::Tensor& like) {
  return at::tensor(rows, at::kLong).to(like.device());
}

double DepthAt(const std::array<double, 2>& span, int k, int steps, NodeShare share) {
  if (k == steps) return span[1];  // rounding could pass the end
  return span[0] + (span[1] - span[0]) * share(static_cast<double>(k) / steps);
}

std::vector<double> Depths(const std::vector<int>& step_counts, const std::array<double, 2>& span,
                           NodeShare share) {
  std::set<double> depths;
  for (const int steps : step_counts) {
    for (int k = 0; k <= steps; ++k) depths.insert(DepthAt(span, k, steps, share));
  }
  return {depths.begin(), depths.end()};
}

TruthBatch::TruthBatch(TensorSpace space, Tableau tableau, std::array<double, 2> span,
                       std::vector<double> depths, std::vector<at::Tensor> states,
                       at::Tensor condition)
    : space_(std::move(space)),
      tableau_(tableau),
      span_(span),
      depths_(std::move(depths)),
      states_(std::move(states)),
      condition_(std::move(condition)) {}

const at::Tensor& TruthBatch::StateAt(double depth) const {
  return states_[std::lower_bound(depths_.begin(), depths_.end(), depth) - depths_.begin()];
}

at::Tensor TruthBatch::ConditionsOf(const at::Tensor& rows) const {
  return condition_.defined() ? condition_.index_select(0, rows) : at::Tensor();
}

const TruthBatch::Interval& TruthBatch::Intervals(int steps) {
  const auto found = intervals_.find(steps);
  if (found != intervals_.end()) return found->second;
  const at::NoGradGuard no_grad;
  const int64_t rows = states_[0].size(0);
  const PerRow eps(rows, (span_[1] - span_[0]) / steps);
  Interval all;
  std::vector<at::Tensor> states, residuals;
  std::vector<std::vector<at::Tensor>> slopes(tableau_.solution_stages());
  for (int k = 0; k < steps; ++k) {
    const PerRow s(rows, DepthOf(k, steps));
    const auto z = space_.Start(StateAt(DepthOf(k, steps)), condition_);
    const auto true_end = space_.Start(StateAt(DepthOf(k + 1, steps)));
    const auto of_step = Slopes(space_, tableau_, tableau_.solution_stages(), s, eps, z);
    const auto residual = Residual<TensorSpace>(space_, tableau_, eps, z, of_step, true_end);
    states.push_back(z.z);
    residuals.push_back(residual.z);
    for (size_t i = 0; i < of_step.size(); ++i) slopes[i].push_back(of_step[i].z);
    all.s.insert(all.s.end(), s.begin(), s.end());
  }
  all.z = at::cat(states);
  all.residual = at::cat(residuals);
  for (const auto& stage : slopes) all.slopes.push_back(space_.Start(at::cat(stage)));
  all.residual_size = MeanRowNorm(all.residual);
  return intervals_[steps] = std::move(all);
}

at::Tensor TruthBatch::ResidualLoss(const TensorSpace& corrected, int steps, int64_t rows,
                                    RandomStream& stream) {
  const Interval& all = Intervals(steps);
  const int64_t trajectories = states_[0].size(0);
  const std::vector<int64_t> drawn = DrawRows(stream, all.z.size(0), rows);
  const at::Tensor indices = IndexTensor(drawn, all.z);
  const at::Tensor starts = indices.remainder(trajectories);
  const at::Tensor condition = ConditionsOf(starts);
  const auto z = corrected.Start(all.z.index_select(0, indices), condition);
  const auto z_first = corrected.Start(states_[0].index_select(0, starts), condition);
  std::vector<TensorSpace::State> slopes;
  for (const auto& slope : all.slopes) slopes.push_back(Selected(slope, indices));
  PerRow s;
  for (const int64_t row : drawn) s.push_back(all.s[row]);
  const PerRow eps(rows, (span_[1] - span_[0]) / steps);
  const auto g = corrected.Correction(eps, s, z, slopes, z_first);
  return RelativeLoss(g.z, all.residual.index_select(0, indices), all.residual_size);
}

at::Tensor TruthBatch::ClassicalErrorSize(int steps) {
  const auto found = classical_errors_.find(steps);
  if (found != classical_errors_.end()) return found->second;
  const at::NoGradGuard no_grad;
  const int64_t rows = states_[0].size(0);
  const PerRow eps(rows, (span_[1] - span_[0]) / steps);
  auto z = space_.Start(states_[0], condition_);
  std::vector<at::Tensor> sizes;
  for (int k = 0; k < steps; ++k) {
    z = ClassicalStep(space_, tableau_, PerRow(rows, DepthOf(k, steps)), eps, z).z_next;
    sizes.push_back(MeanRowNorm(z.z - StateAt(DepthOf(k + 1, steps))));
  }
  return classical_errors_[steps] = at::stack(sizes).mean();
}

at::Tensor TruthBatch::TrajectoryLoss(const TensorSpace& corrected, int steps, int64_t rows,
                                      RandomStream& stream) {
  const at::Tensor indices = IndexTensor(DrawRows(stream, states_[0].size(0), rows), states_[0]);
  const at::Tensor size = ClassicalErrorSize(steps);
  const PerRow eps(rows, (span_[1] - span_[0]) / steps);
  const auto z_first = corrected.Start(states_[0].index_select(0, indices), ConditionsOf(indices));
  auto z = z_first;
  std::vector<at::Tensor> losses;
  for (int k = 0; k < steps; ++k) {
    z = HypersolvedStep(corrected, tableau_, PerRow(rows, DepthOf(k, steps)), eps, z, z_first)
            .z_next;
    losses.push_back(
        RelativeLoss(z.z, StateAt(DepthOf(k + 1, steps)).index_select(0, indices), size));
  }
  return at::stack(losses).mean();
}

}  // namespace hyperserve
