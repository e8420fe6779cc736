#include "core/engine/paired_run.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/plan/plan.h"
#include "core/plan/row_status.h"

namespace hyperserve {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

BatchResult Joined(BatchResult state, BatchResult density) {
  for (size_t i = 0; i < state.status.size(); ++i) {
    if (state.status[i] == RowStatus::kConverged) state.status[i] = density.status[i];
    state.macs[i] += density.macs[i];
  }
  state.log_density = std::move(density.log_density);
  state.log_density_error = std::move(density.log_density_error);
  for (size_t i = 0; i < state.status.size(); ++i) {
    if (state.status[i] == RowStatus::kConverged) continue;
    state.log_density.as<double>()[i] = kNaN;
    if (!state.log_density_error.empty()) state.log_density_error[i] = kNaN;
  }
  state.solved_again += density.solved_again;
  return state;
}

class PairedRun final : public Run {
 public:
  PairedRun(std::unique_ptr<Run> state, std::unique_ptr<Run> density)
      : state_(std::move(state)), density_(std::move(density)) {}

  int64_t room() const override { return std::min(state_->room(), density_->room()); }

  absl::StatusOr<Ticket> Admit(const Segment& segment) override {
    HS_ASSIGN_OR_RETURN(const Ticket state, state_->Admit(segment));
    const absl::StatusOr<Ticket> density = density_->Admit(segment);
    if (!density.ok()) {
      state_->Drop(state);
      return density.status();
    }
    pairs_[next_ticket_] = {.state = {.ticket = state}, .density = {.ticket = *density}};
    return next_ticket_++;
  }

  absl::StatusOr<bool> Advance(int64_t evaluations_max,
                               const std::function<bool()>& cancelled) override {
    // Both, also where the first fails: a segment's data is borrowed until the next Advance.
    const absl::StatusOr<bool> state = state_->Advance(evaluations_max, cancelled);
    const absl::StatusOr<bool> density = density_->Advance(evaluations_max, cancelled);
    if (!state.ok() || !density.ok()) Clear();
    HS_RETURN_IF_ERROR(state.status());
    HS_RETURN_IF_ERROR(density.status());
    return *state && *density;
  }

  absl::StatusOr<std::vector<SolvedSegment>> TakeFinished() override {
    absl::Status taken = Take(*state_, &Pair::state);
    taken.Update(Take(*density_, &Pair::density));
    if (!taken.ok()) {
      Clear();
      return taken;
    }
    std::vector<SolvedSegment> whole;
    for (auto& [ticket, pair] : pairs_) {
      if (!pair.state.rows || !pair.density.rows) continue;
      whole.push_back({.ticket = ticket,
                       .rows = Joined(*std::move(pair.state.rows), *std::move(pair.density.rows))});
    }
    for (const SolvedSegment& one : whole) pairs_.erase(one.ticket);
    return whole;
  }

  void Drop(Ticket ticket) override {
    const auto found = pairs_.find(ticket);
    if (found == pairs_.end()) return;
    state_->Drop(found->second.state.ticket);
    density_->Drop(found->second.density.ticket);
    pairs_.erase(found);
  }

 private:
  struct Half {
    Ticket ticket = 0;  // of its own run
    std::optional<BatchResult> rows = std::nullopt;
  };
  struct Pair {
    Half state, density;
  };

  absl::Status Take(Run& run, Half Pair::*half) {
    HS_ASSIGN_OR_RETURN(std::vector<SolvedSegment> solved, run.TakeFinished());
    for (SolvedSegment& one : solved) {
      const auto found = std::ranges::find_if(
          pairs_, [&](const auto& pair) { return (pair.second.*half).ticket == one.ticket; });
      if (found != pairs_.end()) (found->second.*half).rows = std::move(one.rows);
    }
    return absl::OkStatus();
  }

  // One of the two failed and holds no rows; the other forgets its own.
  void Clear() {
    while (!pairs_.empty()) Drop(pairs_.begin()->first);
  }

  const std::unique_ptr<Run> state_, density_;
  std::map<Ticket, Pair> pairs_;  // segments that are not whole yet
  Ticket next_ticket_ = 0;
};

}  // namespace

bool SolvesStateApart(const BatchSpec& spec, bool on_gpu) {
  if (spec.log_density == LogDensity::kNone || spec.derivative != Derivative::kNone) return false;
  const bool widened = spec.log_density == LogDensity::kStepMap && spec.tier != Tier::kDouble;
  return spec.want_state && (widened || on_gpu);
}

BatchSpec StateAlone(BatchSpec spec) {
  spec.log_density = LogDensity::kNone;
  spec.probes = 0;
  return spec;
}

BatchSpec DensityAlone(BatchSpec spec) {
  spec.want_state = spec.want_depth = spec.want_outputs = spec.want_distance = false;
  spec.save_at.clear();
  return spec;
}

std::unique_ptr<Run> PairRuns(std::unique_ptr<Run> state, std::unique_ptr<Run> density) {
  return std::make_unique<PairedRun>(std::move(state), std::move(density));
}

}  // namespace hyperserve
