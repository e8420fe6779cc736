// The figures of docs/EXPERIMENTS.md: plans of a model, measured on the same held-out rows. Runs on
// the calling thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/engine/device_runtime.h"
#include "core/model/repository/calibration.h"
#include "core/model/spec/spec.h"
#include "training/data/recipe.h"
#include "training/report/page.h"

namespace hyperserve {

// One line of the table.
struct ExperimentPlan {
  PlanCalibration measured;  // times in one batch of the recipe; without marks and log-density
  double accuracy = 0;       // classifiers: share of the rows whose label it finds
  double off = 0;            // trajectories with answers: mean of |states - answer| / |answer|
};

// The states of the first row of a trajectory.
struct Path {
  std::string plan;  // "answer": what the row should be
  std::vector<double> depths;
  std::vector<std::vector<double>> states;  // [depths][numbers]
};

// All that table and picture need: nothing is measured after RunExperiment.
struct Experiment {
  std::string name;
  ModelKind kind = ModelKind::kClassifier;
  std::string remark;   // how many rows, against which reference, on which device
  double accuracy = 0;  // classifiers: of the reference
  std::vector<ExperimentPlan> plans;
  std::vector<Samples> samples;  // flows of two numbers: of the reference, then of each plan
  std::vector<Path> paths;  // trajectories: the answer, if there is one, the reference, each plan
  double off = 0;           // trajectories: of the reference
};

// Measures in the direction that is served:
// - the recipe's classical plans;
// - the plans of each method's generation, of flows only those of as many evaluations as one of the
//   recipe's;
// - beside each alpha(x):K of the recipe, the same step with the generation of another method of
//   two stages and second order, which was never fitted to it: hyper_alpha(x):K.
// Blocks for seconds to minutes; writes no file. Fails as MakeBench, ServedGenerations,
// LoadLabelled and Measurer::Measure do. `code`: as of Model::Load.
absl::StatusOr<Experiment> RunExperiment(const Recipe& recipe, DeviceRuntime& runtime,
                                         const std::string& model_folder,
                                         const std::string& data_folder,
                                         FieldCode code = FieldCode::kRefused);

// One line a plan, with commas, after a line of remarks and a line of names.
std::string ExperimentTable(const Experiment& experiment);

// An SVG file. Flows: samples of each plan. Where there are plans of the alpha family: error over
// alpha. Else error, and of classifiers accuracy lost in points, over NFE, MACs (f and g) and time;
// of trajectories each number of the first row over the depth, under the cheapest hypersolved plan
// and the classical one of its method and K.
std::string ExperimentPicture(const Experiment& experiment);

}  // namespace hyperserve
