// How good a base model is, apart from its solver. On the calling thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/engine/device_runtime.h"
#include "core/model/net/model.h"
#include "training/data/recipe.h"
#include "training/measure/measure.h"
#include "training/measure/rank_test.h"

namespace hyperserve {

// Accuracy on all test images, however few the recipe calibrates on, mean log-density of the
// held-out points, or distance from the answers of a regressor or a trajectory, under the recipe's
// reference plan, as a sentence. Fails as LoadImages and RunSolve do.
absl::StatusOr<std::string> Quality(const Recipe& recipe, DeviceRuntime& runtime,
                                    const std::shared_ptr<const Model>& model,
                                    const std::string& data_folder);

// Samples of a flow, solved under the recipe's reference plan, against points of its density. All
// points are held out; their numbers are fixed, so that p values may be compared.
struct Judgement {
  int64_t rows = 0;     // of each set
  double distance = 0;  // energy distance of the two sets
  double p = 1;         // of the permutation test
  double nll = 0;       // mean of -log p(x) of the density's points, in nats
  double entropy = 0;   // of the density: no model has a smaller nll, but for chance

  // Of a flow with a condition, whose samples and points are compared together with it, and whose
  // density has no entropy here. One test for each number of a point: its rank among samples under
  // the condition that it came with.
  std::vector<RankTest> ranks;
};
// Those tests, of samples that `solve` draws from noise. Precondition: the model is a flow with a
// condition. Fails as RunSolve does.
absl::StatusOr<std::vector<RankTest>> RankSamples(const Recipe& recipe, DeviceRuntime& runtime,
                                                  const Solve& solve);
// Precondition: the model is a flow. Fails as RunSolve does.
absl::StatusOr<Judgement> JudgeFlow(const Recipe& recipe, DeviceRuntime& runtime,
                                    const std::shared_ptr<const Model>& model);
// For people; a line for each test.
std::string JudgementText(const Judgement& judgement);

}  // namespace hyperserve
