// Nets that nobody here made, with answers of an independent program: in double to 1e-12 (slopes
// and fixed steps) and 1e-9 (dopri5:1e-11), of the largest answer.
#include <gtest/gtest.h>

#include "core/engine/batch_spec.h"
#include "core/engine/device_runtime.h"
#include "core/io/tensor.h"
#include "core/model/net/net.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "tests/golden/golden_case.h"
#include "tests/testing/planned_solve.h"

namespace hyperserve {
namespace {

class ExternalTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    absl::StatusOr<GoldenCase> loaded = LoadExternalCase(GetParam());
    if (absl::IsNotFound(loaded.status())) {
      GTEST_SKIP() << "no " << GetParam() << " in " << ExternalFolder();
    }
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    case_.emplace(*std::move(loaded));
  }

  TensorView Answer(const std::string& name) const { return case_->answers.Find(name).value(); }

  // z(1) of the states `start`, in double on the CPU; the one place that runs an engine.
  HostTensor Solved(const StepPlan& plan) const {
    const PlannedSolve solve = {
        .model = case_->model, .plan = plan, .tier = Tier::kDouble, .entry = Entry::kState};
    const auto runtime = MakeDeviceRuntime("cpu").value();
    return Solve(*runtime, solve, Answer("start")).value().state;
  }

  std::optional<GoldenCase> case_;
};

TEST_P(ExternalTest, Slopes) {
  const at::Tensor start = TensorFromView(Answer("start")).to(at::kDouble);
  const Net field = case_->model->weights().Get("field", at::kCPU, at::kDouble);
  for (const auto& [name, s] : {std::pair{"slope_0", 0.0}, std::pair{"slope_half", 0.5}}) {
    const at::Tensor slope = field.Apply(start, at::full({start.size(0)}, s, at::kDouble));
    EXPECT_LE(Compare(HostTensorFrom(slope), Answer(name)).relative, 1e-12) << name;
  }
}

TEST_P(ExternalTest, Steps) {
  const std::vector<GoldenAnswer> answers = FixedAnswers(*case_, "");
  EXPECT_EQ(answers.size(), 3u);
  for (const GoldenAnswer& answer : answers) {
    EXPECT_LE(Compare(Solved(answer.plan), Answer(answer.tensor)).relative, 1e-12) << answer.tensor;
  }
}

// The slope of selu jumps at zero, and a solution meets some hundred such kinks, at which no error
// estimate holds: solved between the kinks (each bisected to 2e-14) the exact end lies 8.4e-9 and
// 1.9e-9 from the answers on file, and dopri5:1e-11 as SciPy steps it 1.6e-8 and 1.5e-8 from the
// exact one. So these are the limits of the answers and of the method.
TEST_P(ExternalTest, End) {
  for (const auto& [tolerance, agreement] : {std::pair{1e-11, 5e-8}, std::pair{1e-13, 1e-8}}) {
    const AdaptivePlan dopri5 = {
        .method = {.method = Method::kDopri5}, .rtol = tolerance, .atol = tolerance};
    EXPECT_LE(Compare(Solved(dopri5), Answer("end")).relative, agreement) << tolerance;
  }
}

INSTANTIATE_TEST_SUITE_P(TorchCfm, ExternalTest,
                         testing::Values("gaussian_to_moons", "eight_gaussians_to_moons"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace hyperserve
