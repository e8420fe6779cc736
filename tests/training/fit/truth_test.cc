// Residuals and trajectories of a linear field, where both are known in closed form.
#include "training/fit/truth.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/engine/readable/tensor_space.h"
#include "core/model/layers/dense.h"
#include "core/model/layers/kind.h"
#include "core/model/layers/layer.h"
#include "core/model/net/net.h"
#include "core/model/spec/spec.h"
#include "core/ode/tableau.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "training/data/random.h"
#include "training/fit/loss.h"
#include "training/fit/trajectory.h"

namespace hyperserve {
namespace {

using ::testing::ElementsAre;

// z' = -z, and g = c z: one linear layer each.
constexpr double kRate = -1.0;

Net OneLayer(int64_t in, const at::Tensor& weight) {
  const LayerList layers = {
      Layer{.kind = LinearLayer{.in = in, .out = weight.size(0), .bias = false}}};
  return Net::Make(layers, "net", {{"net.0.weight", weight}}).value();
}

TensorSpace Space(std::optional<double> correction) {
  TensorSpace::Options options{.field = OneLayer(2, kRate * at::eye(2, at::kDouble))};
  if (correction.has_value()) {
    options.correction = OneLayer(2, *correction * at::eye(2, at::kDouble));
    options.correction_inputs = {CorrectionInput::kState};
  }
  return TensorSpace(std::move(options));
}

TruthBatch MakeTruth(const std::vector<int>& step_counts) {
  const std::array<double, 2> span = {0.0, 1.0};
  const at::Tensor start = at::tensor({1.0, 2.0, -3.0, 0.5, 0.1, 0.2}, at::kDouble).view({3, 2});
  std::vector<at::Tensor> states;
  const std::vector<double> depths = Depths(step_counts, span);
  for (const double depth : depths) states.push_back(start * std::exp(kRate * depth));
  return TruthBatch(Space(std::nullopt), kEulerTableau, span, depths, states);
}

// Of Euler: z e^{-eps} = z - eps z + eps^2 R(z).
double ResidualFactor(double eps) {
  return (std::exp(kRate * eps) - 1 - kRate * eps) / (eps * eps);
}

// A norm of zero counts as 1e-12 (training/fit/loss.cc), here over sizes of 0.05 and more.
constexpr double kFloor = 1e-10;

double Loss(const at::Tensor& loss) { return loss.item<double>(); }

TEST(DepthsTest, EachFractionOnce) {
  EXPECT_THAT(Depths({1, 2, 4, 2}, {0.0, 1.0}), ElementsAre(0.0, 0.25, 0.5, 0.75, 1.0));
  EXPECT_THAT(Depths({3, 6}, {-1.0, 1.0}).size(), 7u);
  EXPECT_EQ(Depths({1, 3}, {0.3, 0.9}).back(), 0.9) << "0.3 + (0.9 - 0.3) is more";
}

TEST(TruthBatchTest, ResidualLossIsZeroForTheExactCorrectionAndOneForNone) {
  TruthBatch truth = MakeTruth({1, 4});
  RandomStream stream(1, RandomPurpose::kBatches);
  for (const int steps : {1, 4}) {
    const double exact = ResidualFactor(1.0 / steps);
    EXPECT_NEAR(Loss(truth.ResidualLoss(Space(exact), steps, 64, stream)), 0.0, kFloor);
    // Half the correction leaves half the residual of whichever rows were drawn.
    RandomStream same = stream;
    const double none = Loss(truth.ResidualLoss(Space(0.0), steps, 64, stream));
    EXPECT_NEAR(Loss(truth.ResidualLoss(Space(0.5 * exact), steps, 64, same)), 0.5 * none, 1e-12);
    EXPECT_NEAR(none, 1.0, 0.35);  // 64 rows drawn of 3 or 12
  }
}

TEST(TruthBatchTest, TrajectoryLossIsZeroForTheExactCorrection) {
  TruthBatch truth = MakeTruth({1, 4});
  RandomStream stream(1, RandomPurpose::kBatches);
  for (const int steps : {1, 4}) {
    const TensorSpace exact = Space(ResidualFactor(1.0 / steps));
    EXPECT_NEAR(Loss(truth.TrajectoryLoss(exact, steps, 16, stream)), 0.0, kFloor);
    EXPECT_NEAR(Loss(truth.TrajectoryLoss(Space(0.0), steps, 2048, stream)), 1.0, 0.1);
  }
}

TEST(TruthBatchTest, ResidualLossReachesTheCorrectionsWeights) {
  const at::Tensor weight = at::zeros({2, 2}, at::kDouble).requires_grad_(true);
  TensorSpace::Options options{.field = OneLayer(2, kRate * at::eye(2, at::kDouble))};
  options.correction = OneLayer(2, weight);
  options.correction_inputs = {CorrectionInput::kState};
  TruthBatch truth = MakeTruth({2});
  RandomStream stream(1, RandomPurpose::kBatches);
  truth.ResidualLoss(TensorSpace(options), 2, 64, stream).backward();
  // The residual is a positive multiple of z: the loss falls as the diagonal grows.
  EXPECT_LT(weight.grad()[0][0].item<double>(), 0.0);
  EXPECT_LT(weight.grad()[1][1].item<double>(), 0.0);
}

TEST(TrajectoryTest, TrueStatesFollowTheExactSolution) {
  const at::Tensor start = at::tensor({1.0, 2.0, -3.0, 0.5}, at::kDouble).view({2, 2});
  const AdaptivePlan plan{.method = {.method = Method::kDopri5}, .rtol = 1e-9, .atol = 1e-9};
  const auto states = TrueStates(Space(std::nullopt), plan, {0.0, 1.0}, {0.0, 0.3, 1.0}, start);
  ASSERT_TRUE(states.ok()) << states.status();
  ASSERT_EQ(states->size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    const double depth = std::array{0.0, 0.3, 1.0}[i];
    EXPECT_LT((states->at(i) - start * std::exp(kRate * depth)).abs().max().item<double>(), 1e-8);
  }
}

TEST(TrajectoryTest, FollowKeepsWhatThePenaltiesLookAt) {
  const TensorSpace space = Space(std::nullopt);
  const at::Tensor start = at::ones({1, 2}, at::kDouble);
  const FixedPlan plan{.method = {.method = Method::kMidpoint}, .steps = 4};
  const Trajectory trajectory = Follow(space, plan, {0.0, 1.0}, space.Start(start));
  EXPECT_EQ(trajectory.first_slopes.size(), 4u);
  ASSERT_EQ(trajectory.later_stages.size(), 4u);
  EXPECT_NEAR(trajectory.end.z[0][0].item<double>(), std::exp(kRate), 5e-3);
  // df/ds of z' = -z is z: here 1, within the quotient's first order.
  const LaterStage& stage = trajectory.later_stages[0];
  EXPECT_NEAR(((stage.slope - stage.first) / stage.offset)[0][0].item<double>(), 1.0, 0.07);
}

TEST(TrajectoryTest, AgainstTheFieldTheSolveIsReflected) {
  ModelSpec spec{.kind = ModelKind::kFlow, .direction = Direction::kDataToNoise};
  const Net field = OneLayer(2, kRate * at::eye(2, at::kDouble));
  const TensorSpace against(SpaceOptions(spec, Direction::kNoiseToData, field));
  const TensorSpace along(SpaceOptions(spec, Direction::kDataToNoise, field));
  const at::Tensor z = at::ones({1, 2}, at::kDouble);
  EXPECT_EQ(along.Field({0.0}, along.Start(z)).z[0][0].item<double>(), -1.0);
  EXPECT_EQ(against.Field({0.0}, against.Start(z)).z[0][0].item<double>(), 1.0);
}

}  // namespace
}  // namespace hyperserve
