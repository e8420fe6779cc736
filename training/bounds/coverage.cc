#include "training/bounds/coverage.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status.h"
#include "core/engine/batch_spec.h"
#include "core/engine/plan_error.h"
#include "core/io/philox.h"
#include "core/io/tensor.h"
#include "core/model/repository/choose_ladder.h"
#include "core/model/repository/choose_plan.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "training/bounds/oracle.h"
#include "training/bounds/tune.h"
#include "training/measure/measure.h"

namespace hyperserve {
namespace {

constexpr double kTurn = std::numbers::pi / 6;
constexpr double kNoise = 0.2;
constexpr uint64_t kNoiseSeed = 5;
constexpr double kStretch = 1.5;

double MeanLog(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += std::log(std::max(value, 1e-30));
  return sum / static_cast<double>(values.size());
}

Outcome Alone(const BoundedPlan& plan, size_t first) { return OutcomeOf({&plan}, {0}, {}, first); }

// As it is served: all plans of a ladder have the same target.
Outcome PerRow(const Ladder& ladder, double target, size_t first) {
  return OutcomeOf(ladder, std::vector<double>(ladder.size(), target), {.distances = true}, first);
}

Ladder LadderOf(const std::vector<BoundedPlan>& plans, double target) {
  std::vector<PlanOption> options;
  for (const BoundedPlan& plan : plans) options.push_back({.measured = &plan.calibration});
  Ladder ladder;
  const auto chosen = ChooseLadder(target, options);
  if (!chosen.ok()) return ladder;
  for (const PlanOption& option : *chosen) {
    for (const BoundedPlan& plan : plans) {
      if (&plan.calibration == option.measured) ladder.push_back(&plan);
    }
  }
  return ladder;
}

// A 99th percentile of the errors that someone asks for, and the cheapest plan for all rows that
// has it.
struct Ask {
  double p99 = 0;
  const BoundedPlan* alone = nullptr;
};

// The percentile on the even rows of each plan that no cheaper one beats, and kBetween of them to
// that of the plan before: who asks for one of these needs the dearer plan.
std::vector<Ask> Asks(const std::vector<BoundedPlan>& plans) {
  constexpr int kBetween = 3;
  std::vector<Ask> asks;
  double cheaper = std::numeric_limits<double>::infinity();
  for (const BoundedPlan& plan : plans) {
    const double own = Alone(plan, 0).p99;
    if (own >= cheaper) continue;
    asks.push_back({.p99 = own, .alone = &plan});
    for (int k = 1; k <= kBetween && std::isfinite(cheaper); ++k) {
      asks.push_back({.p99 = own * std::pow(cheaper / own, k / (kBetween + 1.0)), .alone = &plan});
    }
    cheaper = own;
  }
  return asks;
}

struct PerRowPlans {
  Ladder ladder;  // empty: none has fewer MACs than the plan alone
  double target = 0;
};

// Those with the fewest MACs on the even rows among the ones with the percentile.
PerRowPlans FewestMacs(const std::vector<BoundedPlan>& plans, const Ask& ask) {
  constexpr int kTargets = 120;  // from half to eight times the percentile
  PerRowPlans best;
  double best_macs = Alone(*ask.alone, 0).macs;
  for (int i = 0; i < kTargets; ++i) {
    const double target = ask.p99 * 0.5 * std::pow(16.0, i / (kTargets - 1.0));
    const auto ladder = LadderOf(plans, target);
    if (ladder.size() < 2) continue;
    const Outcome outcome = PerRow(ladder, target, 0);
    if (outcome.p99 > ask.p99 || outcome.macs >= best_macs) continue;
    best = {.ladder = ladder, .target = target};
    best_macs = outcome.macs;
  }
  return best;
}

// The plans to solve by; SolveWithBounds says which. The truth itself has no error here.
std::vector<PlanCalibration> PlansOfUse(const CoverageOptions& options,
                                        const Calibration& calibration) {
  std::vector<PlanCalibration> plans = options.classical;
  plans.insert(plans.end(), calibration.plans.begin(), calibration.plans.end());
  std::erase_if(plans, [&](const PlanCalibration& one) {
    const bool of_use = one.plan.hypersolved() ? one.bound.has_value() : one.plan != options.truth;
    return !of_use || one.plan.tier != Tier::kExact;
  });
  std::stable_sort(
      plans.begin(), plans.end(),
      [](const PlanCalibration& a, const PlanCalibration& b) { return a.macs < b.macs; });
  double least = std::numeric_limits<double>::infinity();
  std::erase_if(plans, [&](const PlanCalibration& one) {
    const double tail = one.error_p99 > 0 ? one.error_p99 : one.error_max;  // of older files
    const bool beaten = tail >= least;
    least = std::min(least, tail);
    return beaten && !one.plan.hypersolved();
  });
  return plans;
}

SolveInputs Turned(const SolveInputs& rows) {
  SolveInputs turned = rows;
  const int64_t height = rows.rows.shape[2], width = rows.rows.shape[3];
  const double middle_y = 0.5 * static_cast<double>(height - 1);
  const double middle_x = 0.5 * static_cast<double>(width - 1);
  for (int64_t row = 0; row < rows.count(); ++row) {
    const auto from = rows.rows.as<uint8_t>().subspan(static_cast<size_t>(row * height * width));
    const auto to = turned.rows.as<uint8_t>().subspan(static_cast<size_t>(row * height * width));
    const auto pixel = [&](int64_t y, int64_t x) {
      const bool inside = y >= 0 && y < height && x >= 0 && x < width;
      return inside ? static_cast<double>(from[static_cast<size_t>(y * width + x)]) : 0.0;
    };
    for (int64_t y = 0; y < height; ++y) {
      for (int64_t x = 0; x < width; ++x) {
        const double dy = static_cast<double>(y) - middle_y, dx = static_cast<double>(x) - middle_x;
        const double at_y = middle_y + std::cos(kTurn) * dy - std::sin(kTurn) * dx;
        const double at_x = middle_x + std::sin(kTurn) * dy + std::cos(kTurn) * dx;
        const auto low_y = static_cast<int64_t>(std::floor(at_y));
        const auto low_x = static_cast<int64_t>(std::floor(at_x));
        const double v = at_y - static_cast<double>(low_y), u = at_x - static_cast<double>(low_x);
        const double value =
            (1 - v) * ((1 - u) * pixel(low_y, low_x) + u * pixel(low_y, low_x + 1)) +
            v * ((1 - u) * pixel(low_y + 1, low_x) + u * pixel(low_y + 1, low_x + 1));
        to[static_cast<size_t>(y * width + x)] = static_cast<uint8_t>(std::lround(value));
      }
    }
  }
  return turned;
}

SolveInputs Noisy(const SolveInputs& rows) {
  SolveInputs noisy = rows;
  const std::span<uint8_t> pixels = noisy.rows.as<uint8_t>();
  std::vector<double> noise(pixels.size());
  PhiloxNormals(kNoiseSeed, 0, rows.count(), static_cast<int64_t>(pixels.size()) / rows.count(),
                noise);
  for (size_t i = 0; i < pixels.size(); ++i) {
    pixels[i] = static_cast<uint8_t>(
        std::lround(std::clamp(pixels[i] + 255 * kNoise * noise[i], 0.0, 255.0)));
  }
  return noisy;
}

SolveInputs Stretched(const SolveInputs& rows) {
  SolveInputs stretched = rows;
  for (float& number : stretched.rows.as<float>()) number *= static_cast<float>(kStretch);
  return stretched;
}

}  // namespace

absl::StatusOr<std::vector<BoundedPlan>> SolveWithBounds(const CoverageOptions& options,
                                                         const Calibration& calibration,
                                                         const SolveInputs& rows) {
  Solve solve{.model = options.model,
              .correction = nullptr,
              .plan = options.truth,
              .direction = options.solver->spec().direction,
              .batch = options.batch};
  HS_ASSIGN_OR_RETURN(const Solution reference, RunSolve(*options.runtime, solve, rows));
  std::vector<BoundedPlan> plans;
  for (const PlanCalibration& measured : PlansOfUse(options, calibration)) {
    const bool learned = measured.bound.has_value();
    solve.correction = learned ? options.solver : nullptr;
    solve.want_distance = learned;
    solve.plan = measured.plan;
    HS_ASSIGN_OR_RETURN(const Solution solution, RunSolve(*options.runtime, solve, rows));
    BoundedPlan& plan = plans.emplace_back();
    plan.calibration = measured;
    plan.errors = ErrorAgainst(reference, solution).rows;
    plan.macs = measured.macs;
    if (!learned) continue;
    for (const double distance : solution.distance) {
      plan.bounds.push_back(measured.bound->factor * distance);
    }
    const int evaluations = measured.plan.fixed()->steps;
    plan.macs += static_cast<double>(options.solver->table(evaluations)->distance_macs);
    plan.evaluation_macs =
        static_cast<double>(evaluations) * static_cast<double>(options.model->field_macs());
  }
  const auto bounded = [](const BoundedPlan& plan) { return plan.learned(); };
  if (std::any_of(plans.begin(), plans.end(), bounded)) return plans;
  return absl::FailedPreconditionError(
      "no plan of this generation has a bound: `hyperserve-train bounds` makes the next one, which "
      "--from=FOLDER names until a daemon has examined it");
}

std::string CoverageTable(const std::vector<BoundedPlan>& plans) {
  std::string table = absl::StrFormat("%-12s %9s %10s %10s %10s %12s %10s\n", "plan", "coverage",
                                      "error", "error 95%", "bound", "bound/error", "constant");
  for (const BoundedPlan& plan : plans) {
    if (!plan.learned()) continue;
    double kept = 0;
    for (size_t row = 0; row < plan.errors.size(); ++row) {
      kept += plan.errors[row] <= plan.bounds[row] ? 1 : 0;
    }
    const double error = MeanLog(plan.errors), bound = MeanLog(plan.bounds);
    const double constant = Quantile(plan.errors, 0.95);
    absl::StrAppendFormat(&table, "%-12s %9.4f %10.3e %10.3e %10.3e %12.2f %10.2f\n",
                          PrintPlan(plan.calibration.plan),
                          kept / static_cast<double>(plan.errors.size()), std::exp(error), constant,
                          std::exp(bound), std::exp(bound - error),
                          std::exp(std::log(constant) - error));
  }
  return table;
}

std::string SavingsTable(const std::vector<BoundedPlan>& plans) {
  std::string table =
      absl::StrFormat("%-12s %10s %10s %8s %8s %8s %10s %8s %10s %8s %10s %8s  %s\n", "plan",
                      "asked", "99 %", "free", "reused", "paid", "tuned 99 %", "MACs", "reus. 99 %",
                      "MACs", "serv. 99 %", "MACs", "target, plans per row");
  for (const Ask& ask : Asks(plans)) {
    const Outcome odd = Alone(*ask.alone, 1);
    const auto saved = [&odd](double macs) { return 100 * (macs / odd.macs - 1); };
    const OracleMacs oracles = MacsOfOracles(plans, *ask.alone, ask.p99, 0);
    absl::StrAppendFormat(&table, "%-12s %10.3e %10.3e %7.0f%% %7.0f%% %7.0f%%",
                          PrintPlan(ask.alone->calibration.plan), ask.p99, odd.p99,
                          saved(oracles.free), saved(oracles.reused), saved(oracles.paid));
    const auto add = [&](const Ladder& ladder, const std::vector<double>& thresholds, bool reused) {
      if (ladder.empty()) {
        absl::StrAppendFormat(&table, " %10s %8s", "-", "no gain");
        return;
      }
      const Outcome outcome =
          OutcomeOf(ladder, thresholds, {.reused = reused, .distances = true}, 1);
      absl::StrAppendFormat(&table, " %10.3e %7.0f%%", outcome.p99, saved(outcome.macs));
    };
    for (const bool reused : {false, true}) {
      const TunedLadder tuned = Tune(plans, *ask.alone, ask.p99, reused);
      add(tuned.ladder, tuned.thresholds, reused);
    }
    const PerRowPlans found = FewestMacs(plans, ask);
    add(found.ladder, std::vector<double>(found.ladder.size(), found.target), false);
    if (!found.ladder.empty()) absl::StrAppendFormat(&table, "  %.3e", found.target);
    for (const BoundedPlan* plan : found.ladder) {
      absl::StrAppend(&table, " ", PrintPlan(plan->calibration.plan));
    }
    table += "\n";
  }
  return table;
}

std::vector<ShiftedRows> Shifted(const SolveInputs& rows) {
  if (rows.entry == Entry::kState) {
    return {{.name = "starts times 1.5", .rows = Stretched(rows)}};
  }
  const bool grey = rows.rows.shape.size() == 4 && rows.rows.shape[1] == 1;
  if (!grey || rows.rows.dtype != Dtype::kU8) return {};
  return {{.name = "turned by 30 degrees", .rows = Turned(rows)},
          {.name = "normal noise of deviation 0.2", .rows = Noisy(rows)}};
}

}  // namespace hyperserve
