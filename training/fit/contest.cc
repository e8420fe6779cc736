#include "training/fit/contest.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>

#include "absl/strings/str_format.h"
#include "core/base/status.h"
#include "core/model/net/cost.h"
#include "core/plan/method.h"
#include "programs/progress.h"
#include "programs/time_after.h"
#include "programs/time_left.h"
#include "training/fit/fit_hypersolver.h"
#include "training/measure/measure.h"
#include "training/optimise/tensor_bytes.h"

namespace hyperserve {
namespace {

// All tables as one solver, its plans, and the MACs of the most costly one.
struct Tables {
  std::shared_ptr<const Hypersolver> solver;
  std::vector<Plan> plans;
  int64_t most_macs = 0;

  static absl::StatusOr<Tables> Of(const Model& model, const HypersolverSpec& spec,
                                   const TensorMap& tensors) {
    Tables all;
    HS_ASSIGN_OR_RETURN(all.solver, Hypersolver::FromBytes(PrintHypersolverSpec(spec),
                                                           SerializeTensors(tensors), model));
    for (const int evaluations : spec.steps) {
      const Plan& plan = all.plans.emplace_back(LearnedPlan(evaluations));
      all.most_macs = std::max(all.most_macs, PlanMacs(model, all.solver.get(), *plan.fixed()));
    }
    return all;
  }
};

absl::StatusOr<std::vector<PlanCalibration>> MeasureTables(const Tables& all, Rivals& rivals) {
  Measurer& held_out = rivals.measurer();
  TimeAfter after;
  after.Set(rivals.Seconds(all.most_macs));
  TimeLeft time_left;
  for (const Plan& plan : all.plans) time_left.Expect(1, held_out.Seconds(plan, all.solver));
  Progress progress("tables", static_cast<int64_t>(all.plans.size()), "plans",
                    [&] { return time_left.Seconds(); });
  std::vector<PlanCalibration> measured;
  for (size_t i = 0; i < all.plans.size(); ++i) {
    HS_ASSIGN_OR_RETURN(measured.emplace_back(), time_left.Timed(i, [&] {
      return held_out.Measure(all.plans[i], all.solver);
    }));
    progress.Advance(1);
  }
  return measured;
}

}  // namespace

Plan LearnedPlan(int evaluations) {
  return {.choice = FixedPlan{.method = {.method = Method::kLearned},
                              .steps = evaluations,
                              .hypersolved = true},
          .tier = Tier::kExact};
}

absl::StatusOr<double> ContestSeconds(const Model& model, const HypersolverSpec& spec,
                                      const TensorMap& tensors, Rivals& rivals) {
  HS_ASSIGN_OR_RETURN(const Tables all, Tables::Of(model, spec, tensors));
  double seconds = rivals.Seconds(all.most_macs);
  for (const Plan& plan : all.plans) seconds += rivals.measurer().Seconds(plan, all.solver);
  return seconds;
}

absl::StatusOr<std::vector<Contest>> HoldContests(const Model& model, const HypersolverSpec& spec,
                                                  const std::vector<FittedTable>& tables,
                                                  Rivals& rivals) {
  TensorMap tensors;
  for (const FittedTable& table : tables) tensors.merge(TensorMap(table.tensors));
  HS_ASSIGN_OR_RETURN(const Tables all, Tables::Of(model, spec, tensors));
  HS_ASSIGN_OR_RETURN(const auto measured, MeasureTables(all, rivals));
  HS_RETURN_IF_ERROR(rivals.Within(all.most_macs).status());  // all at once, in one progress
  std::vector<Contest> contests;
  double least_error = std::numeric_limits<double>::infinity();  // of the kept ones so far
  for (size_t i = 0; i < tables.size(); ++i) {
    Contest& contest =
        contests.emplace_back(Contest{.fitted = &tables[i], .learned = measured[i], .rival = {}});
    HS_ASSIGN_OR_RETURN(
        contest.rival, rivals.BestWithin(PlanMacs(model, all.solver.get(), *all.plans[i].fixed())));
    const double error = contest.learned.error_mean;
    contest.kept = error <= kClaimRatio * contest.rival.error_mean && error < least_error;
    if (contest.kept) least_error = error;
  }
  return contests;
}

std::string RemarkOf(const Contest& contest) {
  const FittedTable& fitted = *contest.fitted;
  const std::string origin =
      fitted.joined.empty()
          ? absl::StrFormat("started at %s, best of iteration %d%s%s", fitted.start,
                            fitted.best_iteration, fitted.remark.empty() ? "" : ", ", fitted.remark)
          : absl::StrFormat("joined (%s)", fitted.joined);
  return absl::StrFormat("%s, %.3f of the error of %s%s", origin,
                         contest.learned.error_mean / contest.rival.error_mean,
                         PrintPlan(contest.rival.plan),
                         contest.kept ? "" : "; left out, it does not win");
}

}  // namespace hyperserve
