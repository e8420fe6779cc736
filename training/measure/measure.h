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

struct Solve {
  std::shared_ptr<const Model> model;
  std::shared_ptr<const Hypersolver> correction;  // null where the plan is classical
  Plan plan;                                      // fixed or adaptive
  Direction direction = Direction::kForward;
  LogDensity log_density = LogDensity::kNone;
  int64_t batch = 256;  // rows solved at once
};
// Solves all rows, in order, with the outputs of a classifier. kFailedPrecondition: a row did not
// converge.
absl::StatusOr<Solution> RunSolve(DeviceRuntime& runtime, const Solve& solve,
                                  const SolveInputs& inputs);

// A set of rows with its reference solution. Not thread-safe.
class Measurer {
 public:
  struct Options {
    std::shared_ptr<const Model> model;
    Direction direction = Direction::kForward;
    SolveInputs inputs;
    Plan reference;
    int64_t batch = 256;
  };
  // Solves the reference, in tier double. `runtime` must outlive the Measurer. Fails as RunSolve
  // does.
  static absl::StatusOr<Measurer> Make(DeviceRuntime& runtime, Options options);

  // Error, cost and time of a plan; the time is the shorter of two runs. `wins` stays true: see
  // MarkWins. Both functions fail as RunSolve does.
  absl::StatusOr<PlanCalibration> Measure(const Plan& plan,
                                          const std::shared_ptr<const Hypersolver>& correction);

  // Only the mean relative error, in one run.
  absl::StatusOr<double> MeanError(const Plan& plan,
                                   const std::shared_ptr<const Hypersolver>& correction);

 private:
  Solve SolveOf(const Plan& plan, const std::shared_ptr<const Hypersolver>& correction) const;
  Measurer(DeviceRuntime& runtime, Options options)
      : runtime_(&runtime), options_(std::move(options)) {}
  DeviceRuntime* runtime_;
  Options options_;
  Solution reference_;
};

// Sets `wins` of hypersolved plans: false if a classical plan has at most its MACs and at most its
// mean error.
void MarkWins(const std::vector<PlanCalibration>& classical,
              std::vector<PlanCalibration>& hypersolved);

// The plan of fewest MACs with at most this mean error; nullopt: there is none.
std::optional<Plan> CheapestWithin(const std::vector<PlanCalibration>& classical, double error);

// The plans as a table for people.
std::string CalibrationTable(ModelKind kind, const std::vector<PlanCalibration>& plans);

}  // namespace hyperserve
