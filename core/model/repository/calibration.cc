#include "core/model/repository/calibration.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/model/spec/proto_json.h"
#include "hyperserve/v1/model.pb.h"

namespace hyperserve {
namespace {

// A fixed or adaptive plan; default and auto name no method.
absl::StatusOr<Plan> ParseDefinitePlan(const std::string& text) {
  absl::StatusOr<Plan> plan = ParsePlan(text);
  if (!plan.ok() || plan->fixed() != nullptr || plan->adaptive() != nullptr) return plan;
  return absl::InvalidArgumentError(
      absl::StrCat("'", text, "' names no method and steps or tolerance, as dopri5:1e-5 does"));
}

absl::StatusOr<Plan> ParseDefaultPlan(const std::string& text) {
  HS_ASSIGN_OR_RETURN(Plan plan, ParsePlan(text));
  if (!std::holds_alternative<AutoPlan>(plan.choice)) {
    HS_ASSIGN_OR_RETURN(plan, ParseDefinitePlan(text));
  }
  if (plan.tier != Tier::kFast) return plan;
  return absl::InvalidArgumentError(
      absl::StrCat("'", text, "': a default plan runs on every device; tier fast needs a GPU"));
}

absl::StatusOr<Plan> ParseMeasuredPlan(const std::string& text) {
  HS_ASSIGN_OR_RETURN(const Plan plan, ParseDefinitePlan(text));
  if (PrintPlan(plan) == text) return plan;
  return absl::InvalidArgumentError(
      absl::StrCat("plan '", text, "' is spelled '", PrintPlan(plan), "'"));
}

absl::Status CheckNumbers(const v1::Calibration::Plan& entry) {
  for (const auto& [name, value] : {std::pair("error_mean", entry.error_mean()),
                                    {"error_p99", entry.error_p99()},
                                    {"error_max", entry.error_max()},
                                    {"log_density_error", entry.log_density_error()},
                                    {"agreement", entry.agreement()},
                                    {"nfe", entry.nfe()},
                                    {"correction_evaluations", entry.correction_evaluations()},
                                    {"macs", entry.macs()},
                                    {"seconds_per_row", entry.seconds_per_row()}}) {
    if (!std::isfinite(value) || value < 0.0) {
      return absl::InvalidArgumentError(
          absl::StrCat("plan '", entry.plan(), "': ", name, " is ", value,
                       ", which is not a finite number of at least 0"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<BatchTime>> ParseTimes(const v1::Calibration::Plan& entry) {
  std::vector<BatchTime> times;
  for (const v1::Calibration::Time& time : entry.times()) {
    const bool ascends = time.rows() > (times.empty() ? 0 : times.back().rows);
    if (!ascends || !std::isfinite(time.seconds()) || time.seconds() < 0.0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "plan '", entry.plan(), "': times[", times.size(), "] is ", time.seconds(), " s for ",
          time.rows(), " rows; rows ascend from 1, seconds are at least 0"));
    }
    times.push_back({.rows = time.rows(), .seconds = time.seconds()});
  }
  return times;
}

absl::StatusOr<std::optional<ErrorBound>> ParseBound(const v1::Calibration::Plan& entry) {
  if (!entry.has_bound()) return std::nullopt;
  const v1::Calibration::Bound& proto = entry.bound();
  ErrorBound bound{.factor = proto.factor(),
                   .rows = proto.rows(),
                   .distances = {proto.distances().begin(), proto.distances().end()}};
  const auto is_usable = [](double x) { return std::isfinite(x) && x >= 0.0; };
  const bool usable = is_usable(bound.factor) && bound.rows > 0 && bound.distances.size() >= 2 &&
                      std::all_of(bound.distances.begin(), bound.distances.end(), is_usable) &&
                      std::is_sorted(bound.distances.begin(), bound.distances.end());
  if (usable) return bound;
  return absl::InvalidArgumentError(absl::StrCat(
      "plan '", entry.plan(), "': bound: factor ", bound.factor, ", ", bound.rows, " rows and ",
      bound.distances.size(),
      " distances; finite numbers of at least 0, rows above 0 and two or more ascending distances "
      "wanted"));
}

}  // namespace

const PlanCalibration* Calibration::Find(const Plan& plan) const {
  const auto found = std::find_if(plans.begin(), plans.end(), [&](const PlanCalibration& measured) {
    return measured.plan == plan;
  });
  return found == plans.end() ? nullptr : &*found;
}

Plan DefaultPlanOf(const Calibration& calibration) {
  return calibration.default_plan.value_or(Plan{.choice = kFallbackPlan});
}

absl::StatusOr<Calibration> ParseCalibration(std::string_view json) {
  HS_ASSIGN_OR_RETURN(const v1::Calibration message, ParseFileJson<v1::Calibration>(json));
  Calibration calibration = {.base_digest = message.base_digest(),
                             .default_plan = std::nullopt,
                             .default_error = message.default_error(),
                             .reference = message.reference(),
                             .device = message.device(),
                             .rows = message.rows(),
                             .plans = {}};
  if (!message.default_plan().empty()) {
    const absl::StatusOr<Plan> plan = ParseDefaultPlan(message.default_plan());
    if (!plan.ok()) return Annotate(plan.status(), "default_plan");
    calibration.default_plan = *plan;
  }
  if (!std::isfinite(calibration.default_error) || calibration.default_error < 0.0) {
    return absl::InvalidArgumentError(absl::StrCat("default_error is ", calibration.default_error,
                                                   ", which is not a finite number of at least 0"));
  }
  for (const v1::Calibration::Plan& entry : message.plans()) {
    const std::string place = absl::StrCat("plans[", calibration.plans.size(), "]");
    const absl::StatusOr<Plan> plan = ParseMeasuredPlan(entry.plan());
    if (!plan.ok()) return Annotate(plan.status(), place);
    HS_RETURN_IF_ERROR(Annotate(CheckNumbers(entry), place));
    auto times = ParseTimes(entry);
    if (!times.ok()) return Annotate(times.status(), place);
    auto bound = ParseBound(entry);
    if (!bound.ok()) return Annotate(bound.status(), place);
    std::optional<double> log_density_error;
    if (entry.has_log_density_error()) log_density_error = entry.log_density_error();
    calibration.plans.push_back({.plan = *plan,
                                 .error_mean = entry.error_mean(),
                                 .error_p99 = entry.error_p99(),
                                 .error_max = entry.error_max(),
                                 .log_density_error = log_density_error,
                                 .agreement = entry.agreement(),
                                 .nfe = entry.nfe(),
                                 .correction_evaluations = entry.correction_evaluations(),
                                 .macs = entry.macs(),
                                 .seconds_per_row = entry.seconds_per_row(),
                                 .batch = entry.batch(),
                                 .times = *std::move(times),
                                 .wins = entry.wins(),
                                 .heavy_tail = entry.heavy_tail(),
                                 .bound = *std::move(bound)});
  }
  return calibration;
}

std::string PrintCalibration(const Calibration& calibration) {
  v1::Calibration message;
  message.set_format(kFileFormat);
  message.set_base_digest(calibration.base_digest);
  if (calibration.default_plan) message.set_default_plan(PrintPlan(*calibration.default_plan));
  message.set_default_error(calibration.default_error);
  message.set_reference(calibration.reference);
  message.set_device(calibration.device);
  message.set_rows(calibration.rows);
  for (const PlanCalibration& plan : calibration.plans) {
    v1::Calibration::Plan& entry = *message.add_plans();
    entry.set_plan(PrintPlan(plan.plan));
    entry.set_error_mean(plan.error_mean);
    entry.set_error_p99(plan.error_p99);
    entry.set_error_max(plan.error_max);
    if (plan.log_density_error) entry.set_log_density_error(*plan.log_density_error);
    entry.set_agreement(plan.agreement);
    entry.set_nfe(plan.nfe);
    entry.set_correction_evaluations(plan.correction_evaluations);
    entry.set_macs(plan.macs);
    entry.set_seconds_per_row(plan.seconds_per_row);
    entry.set_batch(plan.batch);
    for (const BatchTime& time : plan.times) {
      v1::Calibration::Time& one = *entry.add_times();
      one.set_rows(time.rows);
      one.set_seconds(time.seconds);
    }
    entry.set_wins(plan.wins);
    entry.set_heavy_tail(plan.heavy_tail);
    if (plan.bound) {
      entry.mutable_bound()->set_factor(plan.bound->factor);
      entry.mutable_bound()->set_rows(plan.bound->rows);
      for (const double one : plan.bound->distances) entry.mutable_bound()->add_distances(one);
    }
  }
  return PrintProtoJson(message);
}

}  // namespace hyperserve
