// What reports and experiments solve: the generations of a model, and held-out rows under any plan.
// All functions run on the calling thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/engine/device_runtime.h"
#include "core/engine/plan_error.h"
#include "core/model/net/model.h"
#include "core/plan/plan.h"
#include "training/data/dataset.h"
#include "training/data/recipe.h"
#include "training/measure/measure.h"
#include "training/report/page.h"

namespace hyperserve {

// A generation of one method: the one that is served, or the newest.
struct Served {
  std::string label;   // "learned/1"
  std::string folder;  // of the generation
  std::shared_ptr<const Hypersolver> correction;
};
// One of each method that has any. A generation of another base is left out, with a line on stderr.
// Fails as reading does.
absl::StatusOr<std::vector<Served>> ServedGenerations(const std::string& model_folder,
                                                      const Model& model);

// Held-out rows in the direction that is served, and their solution under the reference.
struct Bench {
  DeviceRuntime& runtime;  // must outlive the Bench
  Solve solve;             // its plan and correction are replaced
  SolveInputs rows;
  Solution reference = {};

  // The rows under any plan. Fails as RunSolve does.
  absl::StatusOr<Solution> Run(const Plan& plan,
                               const std::shared_ptr<const Hypersolver>& correction) const;
};
// Takes as many rows as the recipe calibrates on and solves the reference (ReferenceOf). Fails as
// InputSource and RunSolve do.
absl::StatusOr<Bench> MakeBench(const Recipe& recipe, DeviceRuntime& runtime,
                                const std::shared_ptr<const Model>& model,
                                const std::string& data_folder);

// The states of a flow of two numbers.
Samples SamplesOf(const std::string& plan, const Solution& solution);

}  // namespace hyperserve
