// The classical plans that a hypersolved plan must beat. Runs on the calling thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/model/net/model.h"
#include "core/model/repository/calibration.h"
#include "core/plan/plan.h"
#include "training/measure/measure.h"

namespace hyperserve {

// Measures each plan when it is first asked for, without times. `model` and `measurer` must outlive
// it. The functions fail as Measurer::MeasureError does.
class Rivals {
 public:
  Rivals(const Model& model, Measurer& measurer) : model_(model), measurer_(measurer) {}

  // For measurements beside those of rivals, on the same rows.
  Measurer& measurer() { return measurer_; }

  // Every plan of every method of ClassicalRivals, at every K, whose evaluations of f take at most
  // these MACs; where none fits, euler:1. A plan under which a row does not converge is no rival.
  absl::StatusOr<std::vector<PlanCalibration>> Within(int64_t macs);
  // The one of least mean error among them. kFailedPrecondition: there is none.
  absl::StatusOr<PlanCalibration> BestWithin(int64_t macs);

 private:
  // Measures plans that were not measured, and reports progress.
  absl::Status Measure(const std::vector<Plan>& plans);

  const Model& model_;
  Measurer& measurer_;
  // By spelling; nullopt: a row did not converge.
  std::map<std::string, std::optional<PlanCalibration>> measured_;
};

// Sets the marks of MarkWins against every rival of at most the MACs of the most costly plan. Fails
// as Rivals::Within does.
absl::Status MarkAgainstRivals(Rivals& rivals, std::vector<PlanCalibration>& hypersolved);

}  // namespace hyperserve
