// The shipped posterior is calibrated: among samples of an observation, the parameter that led to
// it has a uniform rank (Talts et al. 2018, "Validating Bayesian Inference Algorithms with
// Simulation-Based Calibration").
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/engine/device_runtime.h"
#include "core/io/file.h"
#include "core/model/net/model.h"
#include "core/model/repository/calibration.h"
#include "core/model/repository/repository.h"
#include "core/model/spec/spec.h"
#include "core/plan/plan.h"
#include "training/data/recipe.h"
#include "training/measure/judge.h"
#include "training/measure/rank_test.h"

namespace hyperserve {
namespace {

const std::string kFolder = absl::StrCat(HYPERSERVE_MODELS, "/two_moons");
constexpr double kLeastP = 0.01;  // of a fixed seed: not a coin that each run tosses

class TwoMoonsTest : public ::testing::Test {
 protected:
  // The p value of each number of the parameter.
  std::vector<double> Ranks(const std::string& plan_text) {
    const Plan plan = ParsePlan(plan_text).value();
    std::shared_ptr<const Hypersolver> correction;
    if (plan.hypersolved()) {
      const std::string folder = HypersolverFolder(kFolder, plan.fixed()->method);
      correction =
          Hypersolver::Load(absl::StrCat(folder, "/", ReadActive(folder).value().value()), *model_)
              .value();
    }
    std::vector<double> p;
    const absl::StatusOr<std::vector<RankTest>> tests =
        RankSamples(recipe_, *runtime_,
                    {.model = model_,
                     .correction = correction,
                     .plan = plan,
                     .direction = Direction::kNoiseToData,
                     .batch = 2048});
    for (const RankTest& test : tests.value()) {
      p.push_back(test.p);
    }
    return p;
  }

  const Recipe recipe_ = ReadRecipe(absl::StrCat(HYPERSERVE_RECIPES, "/two_moons.json")).value();
  const std::shared_ptr<const Model> model_ = Model::Load(kFolder).value();
  const std::unique_ptr<DeviceRuntime> runtime_ = MakeDeviceRuntime("cpu").value();
};

TEST_F(TwoMoonsTest, RanksAreUniformUnderTheDefaultPlan) {
  const auto calibration =
      ParseCalibration(ReadFile(kFolder + "/calibration.json", kCalibrationBytesMax).value());
  const std::string plan = PrintPlan(DefaultPlanOf(*calibration));
  for (const double p : Ranks(plan)) EXPECT_GT(p, kLeastP) << plan;
}

TEST_F(TwoMoonsTest, RanksAreUniformUnderAnExactSolve) {
  for (const double p : Ranks("dopri5:1e-4")) EXPECT_GT(p, kLeastP);
}

// What the two tests above would tell: one step puts all samples of an observation on a blob.
TEST_F(TwoMoonsTest, OneStepOfEulerIsNotCalibrated) {
  bool uniform = true;
  for (const double p : Ranks("euler:1")) uniform = uniform && p > kLeastP;
  EXPECT_FALSE(uniform);
}

}  // namespace
}  // namespace hyperserve
