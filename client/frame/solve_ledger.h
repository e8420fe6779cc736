// What the replies of one command said they did, put together: a command's rows may have been sent
// as several requests.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "client/frame/json_writer.h"
#include "hyperserve/v1/hyperserve.pb.h"

namespace hyperserve {

class SolveLedger {
 public:
  // In row order. `rows`: how many the reply holds (its lists may hold one value for all).
  void Add(const v1::SolveInfo& info, int64_t rows);

  int64_t rows() const { return static_cast<int64_t>(status_.size()); }
  int64_t failed_rows() const;
  bool converged(int64_t row) const { return status_[row] == v1::ROW_STATUS_CONVERGED; }
  std::string status_name(int64_t row) const;  // "converged", as in core/plan
  const std::string& model() const { return model_; }
  const std::string& plan() const { return plan_; }
  const std::set<int64_t>& generations() const { return generations_; }

  // Per row; NaN where the replies did not say.
  double nfe_mean() const;
  double correction_evaluations_mean() const;
  double macs_mean() const;
  // Median over requests of solve time over the rows that were solved together (padding included).
  double solve_seconds_per_row_p50() const;

  // The fields that every solving command prints: model, plan, tier, generation (the only one, or a
  // list), base_digest, engine, device, bucket, request_ids, nfe, correction_evaluations, macs,
  // row_status (one value where all are equal), queue_seconds and solve_seconds (sums over
  // requests).
  void WriteFields(JsonWriter& json) const;
  // "64 rows, plan euler:4, generation 0, 4 NFE, 0 corrections, 1.4e+08 MACs a row"; failed rows
  // counted by status.
  std::string Summary() const;

 private:
  std::string model_, plan_, tier_, base_digest_, engine_, device_;
  std::vector<std::string> request_ids_;
  std::set<int64_t> generations_, buckets_;
  std::vector<double> nfe_, correction_evaluations_, macs_;  // per row
  std::vector<v1::RowStatus> status_;
  std::vector<double> seconds_per_row_;
  double queue_seconds_ = 0, solve_seconds_ = 0;
};

}  // namespace hyperserve
