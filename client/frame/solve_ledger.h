// Joins the SolveInfos of all replies of one command, whose rows may have been sent in several
// requests. Not thread-safe. Nothing fails.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "client/frame/json_writer.h"
#include "hyperserve/v1/hyperserve.pb.h"

namespace hyperserve {

// Model, plan, tier, digest, engine and device are those of the last reply: the requests of one
// command share them, unless the server was changed meanwhile.
class SolveLedger {
 public:
  // Call in row order. `rows` is the number of rows in the reply, since its lists may hold one
  // value for all of them.
  void Add(const v1::SolveInfo& info, int64_t rows);

  int64_t rows() const { return static_cast<int64_t>(status_.size()); }
  // Rows whose status is not converged; a reply that tells no status counts as failed.
  int64_t failed_rows() const;
  bool converged(int64_t row) const { return status_[row] == v1::ROW_STATUS_CONVERGED; }
  std::string status_name(int64_t row) const;  // "converged", as in core/plan
  const std::string& model() const { return model_; }
  const std::string& plan() const { return plan_; }
  const std::set<int64_t>& generations() const { return generations_; }
  bool has_bounds() const { return has_bounds_; }
  // NaN where the row has none.
  double error_bound(int64_t row) const { return error_bound_[row]; }

  // Means over the rows; NaN where the replies do not hold them.
  double nfe_mean() const;
  double correction_evaluations_mean() const;
  double macs_mean() const;
  // The median over requests of (solve time) / (rows in the batch, with padding).
  double solve_seconds_per_row_p50() const;

  // Writes the fields that every solving command prints: model, plan, tier, generation (one number,
  // or a list), base_digest, engine, device, buckets, request_ids, rows, nfe,
  // correction_evaluations, macs, rows_failed, row_status (lists, or one value where all rows have
  // the same), error_bound, probes with log_density_error and plan_rows where the replies hold
  // them, queue_seconds and solve_seconds (sums over requests). The caller has begun an object.
  void WriteFields(JsonWriter& json) const;
  // One line: "64 rows of fashion, plan euler:4, generation 0, a row: 4 NFE, 0 corrections, 1.4e+08
  // MACs", then, where there are any, the median of the bounds, the probes with the median standard
  // error, the rows that ended under each plan and the number of failed rows by status.
  std::string Summary() const;

 private:
  std::string model_, plan_, tier_, base_digest_, engine_, device_;
  std::vector<std::string> request_ids_;
  std::set<int64_t> generations_, buckets_;
  std::vector<double> nfe_, correction_evaluations_, macs_;  // per row
  std::vector<double> error_bound_;                          // per row; NaN: none
  bool has_bounds_ = false;
  int32_t probes_ = 0;
  std::vector<double> log_density_error_;  // per row; empty: log-densities were not estimated
  std::vector<v1::PlanRows> plan_rows_;    // sums over requests
  std::vector<v1::RowStatus> status_;
  std::vector<double> seconds_per_row_;
  double queue_seconds_ = 0, solve_seconds_ = 0;
};

}  // namespace hyperserve
