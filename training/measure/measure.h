// Measures plans as they are served: the engine solves the same rows under a plan and under the
// reference. All functions run on the calling thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/engine/batch_spec.h"
#include "core/engine/device_runtime.h"
#include "core/engine/plan_error.h"
#include "core/io/tensor.h"
#include "core/model/net/model.h"
#include "core/model/repository/calibration.h"
#include "core/model/repository/repository.h"
#include "core/model/spec/spec.h"
#include "core/plan/plan.h"
#include "training/data/dataset.h"

namespace hyperserve {

// One way of solving, without the rows.
struct Solve {
  std::shared_ptr<const Model> model;
  std::shared_ptr<const Hypersolver> correction;  // null where the plan is classical
  Plan plan;                                      // fixed or adaptive
  Direction direction = Direction::kForward;
  LogDensity log_density = LogDensity::kNone;
  int64_t batch = 256;         // rows solved at once
  bool want_distance = false;  // of each row; learned solvers only
  bool want_outputs = false;   // also of a regressor
};
// Solves all rows, in order, with the outputs of a classifier and the states of a trajectory at its
// depths, and reports progress.
// kFailedPrecondition: a row did not converge. kCancelled: a signal asked to stop.
absl::StatusOr<Solution> RunSolve(DeviceRuntime& runtime, const Solve& solve,
                                  const SolveInputs& inputs);

// The plan of a reference: in tier double; of a field that is code, which computes in float32, in
// tier exact and with no tolerance below 1e-6.
Plan ReferenceOf(const Model& model, Plan plan);

// Error and cost of a solution of the same rows as the reference, without times. Pure.
PlanCalibration CalibrationOf(const Plan& plan, const Solution& reference,
                              const Solution& solution);

// A set of rows with its reference solution. Not thread-safe.
class Measurer {
 public:
  // Of one set of rows; the Measurer keeps a copy.
  struct Options {
    std::shared_ptr<const Model> model;
    Direction direction = Direction::kForward;
    SolveInputs inputs;
    Plan reference;
    int64_t batch = 256;
  };
  // Solves the reference (ReferenceOf). `runtime` must outlive the Measurer. Fails as RunSolve
  // does.
  static absl::StatusOr<Measurer> Make(DeviceRuntime& runtime, Options options);

  // Error and cost of a plan, of flows in tier exact also the error of the log-density that Sample
  // returns. `wins` stays true: see MarkWins. The functions fail as RunSolve does.
  absl::StatusOr<PlanCalibration> MeasureError(
      const Plan& plan, const std::shared_ptr<const Hypersolver>& correction);
  // The same with the times of batches of several sizes: after one run that warms up, the median of
  // up to five, fewer where they take long.
  absl::StatusOr<PlanCalibration> Measure(const Plan& plan,
                                          const std::shared_ptr<const Hypersolver>& correction);

  // Only the mean relative error, in one run.
  absl::StatusOr<double> MeanError(const Plan& plan,
                                   const std::shared_ptr<const Hypersolver>& correction);

  // About what one of these functions costs, in evaluations of f in float32; for progress only.
  double PredictedCost(const Plan& plan) const;

 private:
  // RunSolve without progress.
  absl::StatusOr<Solution> Quietly(const Solve& solve) const;
  Solve SolveOf(const Plan& plan, const std::shared_ptr<const Hypersolver>& correction) const;
  absl::StatusOr<double> MedianSeconds(const Solve& solve, int64_t rows);
  Measurer(DeviceRuntime& runtime, Options options)
      : runtime_(&runtime), options_(std::move(options)) {}
  DeviceRuntime* runtime_;
  Options options_;
  Solution reference_;  // of flows with the log-density
};

// Sets two marks of hypersolved plans. `wins`: no classical plan of at most its MACs, and no
// hypersolved one of fewer evaluations of f, has at most its mean error. `heavy_tail`: its 99th
// percentile is above that of the most accurate classical plan of at most its MACs.
void MarkWins(const std::vector<PlanCalibration>& classical,
              std::vector<PlanCalibration>& hypersolved);

// The plan of fewest MACs with at most this mean error and at least this agreement, without a heavy
// tail; nullopt: there is none.
std::optional<Plan> CheapestWithin(const std::vector<PlanCalibration>& plans, double error,
                                   double agreement);

// The plans as a table for people.
std::string CalibrationTable(ModelKind kind, const std::vector<PlanCalibration>& plans);

}  // namespace hyperserve
