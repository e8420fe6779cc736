#include "client/frame/solve_ledger.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/frame/percentile.h"
#include "client/frame/table.h"

namespace hyperserve {
namespace {

// Appends a list of the wire for `rows` rows. A list of one value stands for all rows, an empty
// list for `not_said`.
template <class List, class T>
void AppendRows(const List& list, int64_t rows, T not_said, std::vector<T>& to) {
  for (int64_t row = 0; row < rows; ++row) {
    if (list.size() == rows) {
      to.push_back(static_cast<T>(list[static_cast<int>(row)]));
    } else {
      to.push_back(list.size() == 1 ? static_cast<T>(list[0]) : not_said);
    }
  }
}

double Mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

std::string RowStatusText(v1::RowStatus status) {
  const std::string name = v1::RowStatus_Name(status);
  return absl::AsciiStrToLower(name.substr(std::string("ROW_STATUS_").size()));
}

// Writes counts as JSON integers; one number where all are equal.
void WriteCounts(JsonWriter& json, std::string_view name, const std::vector<double>& values) {
  json.Key(name);
  const auto write = [&json](double value) {
    if (std::isnan(value)) {
      json.Value(value);
    } else {
      json.Value(static_cast<int64_t>(value));
    }
  };
  const auto as_first = [&values](double value) {
    return value == values[0] || (std::isnan(value) && std::isnan(values[0]));
  };
  if (!values.empty() && std::ranges::all_of(values, as_first)) {
    write(values[0]);
    return;
  }
  json.BeginArray();
  std::ranges::for_each(values, write);
  json.EndArray();
}

}  // namespace

void SolveLedger::Add(const v1::SolveInfo& info, int64_t rows) {
  constexpr double kNotSaid = std::numeric_limits<double>::quiet_NaN();
  model_ = info.model();
  plan_ = info.plan();
  tier_ = info.tier();
  base_digest_ = info.base_digest();
  engine_ = info.engine();
  device_ = info.device();
  request_ids_.push_back(info.request_id());
  generations_.insert(info.generation());
  buckets_.insert(info.bucket());
  AppendRows(info.nfe(), rows, kNotSaid, nfe_);
  AppendRows(info.correction_evaluations(), rows, kNotSaid, correction_evaluations_);
  AppendRows(info.macs(), rows, kNotSaid, macs_);
  AppendRows(info.row_status(), rows, v1::ROW_STATUS_UNSPECIFIED, status_);
  AppendRows(info.error_bound(), rows, kNotSaid, error_bound_);
  has_bounds_ = has_bounds_ || !info.error_bound().empty();
  probes_ = info.probes();
  if (probes_ > 0) AppendRows(info.log_density_error(), rows, kNotSaid, log_density_error_);
  for (const v1::PlanRows& part : info.plan_rows()) {
    const auto same = [&](const v1::PlanRows& one) { return one.plan() == part.plan(); };
    const auto found = std::ranges::find_if(plan_rows_, same);
    v1::PlanRows& all = found == plan_rows_.end() ? plan_rows_.emplace_back() : *found;
    all.set_plan(part.plan());
    all.set_rows(all.rows() + part.rows());
    all.set_rows_ended(all.rows_ended() + part.rows_ended());
  }
  queue_seconds_ += info.queue_seconds();
  solve_seconds_ += info.solve_seconds();
  // solve_seconds is the time of the whole batch, which may hold rows of other requests.
  const int64_t solved = std::max(rows, info.bucket());
  if (solved > 0) seconds_per_row_.push_back(info.solve_seconds() / static_cast<double>(solved));
}

int64_t SolveLedger::failed_rows() const {
  return std::ranges::count_if(
      status_, [](v1::RowStatus status) { return status != v1::ROW_STATUS_CONVERGED; });
}

std::string SolveLedger::status_name(int64_t row) const { return RowStatusText(status_[row]); }
double SolveLedger::nfe_mean() const { return Mean(nfe_); }
double SolveLedger::correction_evaluations_mean() const { return Mean(correction_evaluations_); }
double SolveLedger::macs_mean() const { return Mean(macs_); }
double SolveLedger::solve_seconds_per_row_p50() const { return Percentile(seconds_per_row_, 0.5); }

void SolveLedger::WriteFields(JsonWriter& json) const {
  json.Field("model", model_).Field("plan", plan_).Field("tier", tier_);
  if (generations_.size() == 1) {
    json.Field("generation", *generations_.begin());
  } else {
    json.Field("generation", generations_);
  }
  json.Field("base_digest", base_digest_).Field("engine", engine_).Field("device", device_);
  json.Field("buckets", buckets_).Field("request_ids", request_ids_).Field("rows", rows());
  WriteCounts(json, "nfe", nfe_);
  WriteCounts(json, "correction_evaluations", correction_evaluations_);
  WriteCounts(json, "macs", macs_);
  json.Field("rows_failed", failed_rows()).Key("row_status");
  if (!status_.empty() && std::ranges::count(status_, status_[0]) == std::ssize(status_)) {
    json.Value(RowStatusText(status_[0]));
  } else {
    json.BeginArray();
    for (const v1::RowStatus status : status_) json.Value(RowStatusText(status));
    json.EndArray();
  }
  if (has_bounds_) json.Field("error_bound", error_bound_);
  if (probes_ > 0) {
    json.Field("probes", probes_).Field("log_density_error", log_density_error_);
  }
  if (!plan_rows_.empty()) {
    json.Key("plan_rows").BeginArray();
    for (const v1::PlanRows& one : plan_rows_) {
      json.BeginObject().Field("plan", one.plan()).Field("rows", one.rows());
      json.Field("rows_ended", one.rows_ended()).EndObject();
    }
    json.EndArray();
  }
  json.Field("queue_seconds", queue_seconds_).Field("solve_seconds", solve_seconds_);
}

std::string SolveLedger::Summary() const {
  std::string text = absl::StrFormat(
      "%s of %s, plan %s, generation %s, a row: %.4g NFE, %.4g corrections, %.4g MACs",
      Counted(rows(), "row"), model_, plan_, absl::StrJoin(generations_, "+"), nfe_mean(),
      correction_evaluations_mean(), macs_mean());
  if (has_bounds_) {
    std::vector<double> bounds;
    std::ranges::copy_if(error_bound_, std::back_inserter(bounds),
                         [](double bound) { return std::isfinite(bound); });
    absl::StrAppend(&text, "; ", Counted(std::ssize(bounds), "row"), " with a bound");
    if (!bounds.empty()) absl::StrAppendFormat(&text, ", median %.3g", Percentile(bounds, 0.5));
  }
  if (probes_ > 0) {
    std::vector<double> errors;
    std::ranges::copy_if(log_density_error_, std::back_inserter(errors),
                         [](double error) { return std::isfinite(error); });
    absl::StrAppend(&text, "; log-densities estimated by ", Counted(probes_, "probe"), " a row");
    if (!errors.empty()) {
      absl::StrAppendFormat(&text, ", median standard error %.3g", Percentile(errors, 0.5));
    }
  }
  for (const v1::PlanRows& one : plan_rows_) {
    absl::StrAppend(&text, "; ", one.plan(), " ended ", one.rows_ended(), " of ", one.rows());
  }
  std::map<std::string, int64_t> failures;
  for (const v1::RowStatus status : status_) {
    if (status != v1::ROW_STATUS_CONVERGED) ++failures[RowStatusText(status)];
  }
  for (const auto& [name, count] : failures) {
    absl::StrAppend(&text, "; ", Counted(count, "row"), " failed: ", name);
  }
  return text;
}

}  // namespace hyperserve
