// calibration.json: the measured error and cost of plans, for a model or for one generation of a
// correction. It is parsed and checked once; after that, plans are values. The file is protobuf
// JSON of hyperserve.v1.Calibration. Pure: no access to files, no LibTorch; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"

namespace hyperserve {

inline constexpr int64_t kCalibrationBytesMax = 4 << 20;  // of the file

// The default plan where a calibration names none.
inline constexpr AdaptivePlan kFallbackPlan = {
    .method = {.method = Method::kDopri5}, .rtol = 1e-5, .atol = 1e-5};

// The median time of solving a batch of so many rows at once.
struct BatchTime {
  int rows = 0;
  double seconds = 0;
  bool operator==(const BatchTime&) const = default;
};

// The bound of each row's error: `factor` times its distance (core/ode/solver_table.h), for 95 % of
// rows that are like the calibrated ones. core/model/repository/error_bound.h makes and reads it.
struct ErrorBound {
  double factor = 0;
  int rows = 0;  // that it was calibrated on
  std::vector<double>
      distances;  // quantiles of theirs, at equal steps from the least to the largest
  bool operator==(const ErrorBound&) const = default;
};

// What was measured of one plan on held-out rows. A plan that was not measured has no entry.
struct PlanCalibration {
  Plan plan;  // fixed or adaptive
  // Relative error of z(s1) against the reference, |dz| / |z|: mean, 99th percentile (0 in older
  // files) and maximum over the rows.
  double error_mean = 0;
  double error_p99 = 0;
  double error_max = 0;
  // Flows: the mean distance of the log-density that Sample returns from the reference's, in nats.
  // nullopt: not measured.
  std::optional<double> log_density_error;
  double agreement = 0;  // classifiers: share of rows with the reference's label; else 0
  // Means over the rows; macs counts f and g.
  double nfe = 0;
  double correction_evaluations = 0;
  double macs = 0;
  double seconds_per_row = 0;  // in batches of `batch` rows
  int batch = 0;
  std::vector<BatchTime> times;  // by ascending rows; empty in older files
  // Hypersolved plans: no classical plan of at most these MACs, and no hypersolved one of fewer
  // evaluations of f, has at most this error.
  bool wins = true;
  // Hypersolved plans: error_p99 is above that of the most accurate classical plan of at most these
  // MACs. An automatic plan never chooses such a plan.
  bool heavy_tail = false;
  std::optional<ErrorBound> bound;  // nullopt: rows under this plan get no bound
};

// Belongs to one ServedModel or one Generation, and is never changed once it is served.
struct Calibration {
  std::string base_digest;
  std::optional<Plan> default_plan;  // fixed, adaptive or automatic; exact or double
  double default_error = 0;          // the mean error it was chosen for; 0: not told
  std::string reference;             // how the reference was solved; for people
  std::string device;                // of the measured times; for people
  int rows = 0;                      // number of held-out rows
  std::vector<PlanCalibration> plans;

  // The entry of this plan, which belongs to this object; null: not measured. A plan in another
  // tier is another plan.
  const PlanCalibration* Find(const Plan& plan) const;
};

// The plan of requests that ask for the default: default_plan, or kFallbackPlan where it is not
// set.
Plan DefaultPlanOf(const Calibration& calibration);

// kInvalidArgument names the wrong entry: a plan that is not in its canonical spelling, a plan that
// is neither fixed nor adaptive (default, auto), a default plan that is itself `default` or of tier
// fast, times or distances that do not ascend, or a number that is not finite or below 0. Does not
// compare base_digest with a model.
absl::StatusOr<Calibration> ParseCalibration(std::string_view json);
// Precondition: every plan is fixed or adaptive, and valid.
std::string PrintCalibration(const Calibration& calibration);

}  // namespace hyperserve
