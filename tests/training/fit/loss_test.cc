#include "training/fit/loss.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace hyperserve {
namespace {

double Value(const at::Tensor& tensor) { return tensor.item<double>(); }

TEST(LossTest, MeanRowNorm) {
  const at::Tensor x = at::tensor({3.0, 4.0, 0.0, 0.0, 5.0, 12.0}, at::kDouble).view({3, 2});
  EXPECT_NEAR(Value(MeanRowNorm(x)), (5.0 + 0.0 + 13.0) / 3, 1e-9);
  EXPECT_NEAR(Value(MeanRowNorm(x.view({3, 2, 1, 1}))), 6.0, 1e-9);
}

TEST(LossTest, MeanRowNormHasAFiniteGradientAtZero) {
  at::Tensor x = at::zeros({2, 2}, at::kFloat).requires_grad_(true);
  MeanRowNorm(x).backward();
  EXPECT_TRUE(at::isfinite(x.grad()).all().item<bool>());
}

TEST(LossTest, RelativeLossIsOneForAGuessOfZero) {
  const at::Tensor truth = at::tensor({3.0, 4.0, 6.0, 8.0}, at::kDouble).view({2, 2});
  const at::Tensor size = MeanRowNorm(truth);
  EXPECT_NEAR(Value(RelativeLoss(at::zeros_like(truth), truth, size)), 1.0, 1e-12);
  EXPECT_NEAR(Value(RelativeLoss(0.75 * truth, truth, size)), 0.25, 1e-12);
  // Its scale does not matter: step sizes weigh the same.
  EXPECT_NEAR(Value(RelativeLoss(0.75e-5 * truth, 1e-5 * truth, 1e-5 * size)), 0.25, 1e-9);
}

TEST(LossTest, Penalties) {
  const at::Tensor ones = at::ones({4, 3});
  EXPECT_NEAR(Value(SpeedPenalty({ones, 3 * ones})), 5.0, 1e-6);
  // Slopes 1 and 2 a quarter of a unit of depth apart: df/ds = 4.
  const LaterStage stage{.offset = 0.25, .slope = 2 * ones, .first = ones};
  const LaterStage still{.offset = 0.25, .slope = ones, .first = ones};
  EXPECT_NEAR(Value(BendPenalty({stage})), 16.0, 1e-5);
  EXPECT_NEAR(Value(BendPenalty({stage, still})), 8.0, 1e-5);
}

TEST(LossTest, NegativeLogLikelihoodOfAScaledNormal) {
  // x = z / 2 of a normal z: log p(x) = log N(2 x) + 2 log 2 in two dimensions.
  const at::Tensor z1 = at::tensor({0.0, 0.0, 1.0, 2.0}, at::kDouble).view({2, 2});
  const at::Tensor trace = at::full({2}, 2 * std::log(2.0), at::kDouble);
  const double log_norm = std::log(2 * std::numbers::pi);
  const double expected = 0.5 * (log_norm + (log_norm + 2.5)) - 2 * std::log(2.0);
  EXPECT_NEAR(Value(NegativeLogLikelihood(z1, trace)), expected, 1e-12);
}

}  // namespace
}  // namespace hyperserve
