// calibration.json: measured error and cost of plans, of a model or of one generation of a
// correction. Parsed and checked once, when the file is read; from then on plans are values.
// Protobuf JSON of hyperserve.v1.Calibration. Pure: no files, no LibTorch.
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

// The default plan of a model whose calibration names none.
inline constexpr AdaptivePlan kFallbackPlan = {
    .method = {.method = Method::kDopri5}, .rtol = 1e-5, .atol = 1e-5};

struct PlanCalibration {
  Plan plan;  // fixed or adaptive
  double error_mean =
      0;  // relative error of z(s1) against the reference: mean over rows of |dz| / |z|
  double error_max = 0;
  double agreement = 0;  // classifiers: share of rows with the reference's label; else 0
  double nfe = 0;        // per row, mean
  double correction_evaluations = 0;
  double macs = 0;             // per row, f and g
  double seconds_per_row = 0;  // measured, at `batch` rows
  int batch = 0;
  bool wins = true;  // hypersolved: no classical plan has at most its error at at most its MACs
};

struct Calibration {
  std::string base_digest;
  std::optional<Plan> default_plan;  // fixed or adaptive, exact or double
  std::string reference;             // how the reference was solved; for people
  std::string device;                // where the times were measured
  int rows = 0;                      // held-out rows
  std::vector<PlanCalibration> plans;

  // What was measured of this very plan; null: nothing. The same method and steps in another tier
  // are another plan.
  const PlanCalibration* Find(const Plan& plan) const;
};

// The plan that a request without one gets: kFallbackPlan where the calibration names none.
Plan DefaultPlanOf(const Calibration& calibration);

// kInvalidArgument names the entry: one that is no plan in its one spelling, a plan that does not
// say itself what is done (default, auto), a number that is not finite and at least 0.
absl::StatusOr<Calibration> ParseCalibration(std::string_view json);
// Precondition: every plan is fixed or adaptive, and valid.
std::string PrintCalibration(const Calibration& calibration);

}  // namespace hyperserve
