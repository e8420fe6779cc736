// The twin of the fused convolution kernel against answers worked out by hand, and what fits the
// kernel. conv_model_test compares it with the readable engine on whole models.
#include "core/kernels/conv/conv_twin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/kernels/conv/conv_fit.h"
#include "core/kernels/conv/conv_model.h"
#include "core/ode/tableau.h"
#include "tests/core/kernels/conv_nets.h"

namespace hyperserve::kernels {
namespace {

using ::testing::HasSubstr;

// A filter with one weight.
std::vector<float> OneTap(int tap, float weight) {
  std::vector<float> filter(9);
  filter[static_cast<size_t>(tap)] = weight;
  return filter;
}

ConvModel OneChannel(const ConvLayer& layer) {
  return {.channels = 1, .height = 3, .width = 3, .field = {layer}};
}

const std::vector<double> kImage = {1, 2, 3, 4, 5, 6, 7, 8, 9};

void ExpectTimes(double factor, const std::vector<double>& found) {
  for (size_t i = 0; i < kImage.size(); ++i) EXPECT_NEAR(found[i], factor * kImage[i], 1e-12);
}

TEST(ConvTwinTest, ATapReadsItsNeighbourAndZerosBeyondTheBorder) {
  const ConvModel up =
      OneChannel({.inputs = {ConvInput::kBefore}, .outputs = 1, .weight = OneTap(1, 2.0f)});
  EXPECT_EQ(TwinConvField(up, 0.0, kImage), (std::vector<double>{0, 0, 0, 2, 4, 6, 8, 10, 12}));
  const ConvModel down_right = OneChannel(
      {.inputs = {ConvInput::kBefore}, .outputs = 1, .weight = OneTap(8, 1.0f), .bias = {0.5f}});
  EXPECT_EQ(TwinConvField(down_right, 0.0, kImage),
            (std::vector<double>{5.5, 6.5, 0.5, 8.5, 9.5, 0.5, 0.5, 0.5, 0.5}));
}

TEST(ConvTwinTest, ConstantChannelsEndAtTheBorder) {
  ConvLayer layer{.inputs = {ConvInput::kDepth, ConvInput::kBefore}, .outputs = 1};
  layer.weight = std::vector<float>(9, 1.0f);
  layer.weight.resize(18);
  EXPECT_EQ(TwinConvField(OneChannel(layer), 0.5, kImage),
            (std::vector<double>{2, 3, 2, 3, 4.5, 3, 2, 3, 2}));
}

TEST(ConvTwinTest, Activations) {
  ConvLayer layer{.inputs = {ConvInput::kBefore}, .outputs = 1, .weight = OneTap(4, -1.0f)};
  layer.activation = ConvActivation::kRectifier;
  layer.slopes = {0.25f};
  EXPECT_EQ(TwinConvField(OneChannel(layer), 0.0, kImage)[3], -1.0);
  layer.activation = ConvActivation::kSoftplus;
  EXPECT_NEAR(TwinConvField(OneChannel(layer), 0.0, kImage)[3], std::log(1 + std::exp(-4)), 1e-15);
}

// f = z: Runge-Kutta of order p is the exponential series up to p.
TEST(ConvTwinTest, StepsAreThoseOfTheTableau) {
  ConvModel model =
      OneChannel({.inputs = {ConvInput::kBefore}, .outputs = 1, .weight = OneTap(4, 1.0f)});
  ExpectTimes(1 + 1 + 0.5 + 1.0 / 6 + 1.0 / 24,
              TwinConvSolve(model, {.tableau = kRk4Tableau, .steps = 1}, kImage));
  // g = slope_1, eps = 1/2: a step is z + z/2 + z/4.
  ConvLayer g{.inputs = {ConvInput::kSlope1, ConvInput::kBefore}, .outputs = 1};
  g.weight = OneTap(4, 1.0f);
  g.weight.resize(18);
  model.correction = {g};
  ExpectTimes(1.75 * 1.75, TwinConvSolve(model, {.steps = 2, .hypersolved = true}, kImage));
}

TEST(ConvFitTest, SaysWhatDoesNotFit) {
  const auto misfit = [](int channels, int height, std::vector<int> hidden) {
    return ConvMisfit(testing::RandomConvModel(channels, height, 12, hidden, {8}, 1));
  };
  EXPECT_EQ(misfit(8, 12, {12}), "");
  EXPECT_THAT(misfit(33, 12, {12}), HasSubstr("33 channels"));
  EXPECT_THAT(misfit(8, 2, {12}), HasSubstr("2 x 12"));
  EXPECT_THAT(misfit(8, 12, {65}), HasSubstr("65 channels; the fused kernel takes 1 to 64"));
  EXPECT_THAT(misfit(8, 12, std::vector<int>(10, 8)), HasSubstr("13 layers"));
  ConvModel model = testing::RandomConvModel(8, 12, 12, {12}, {8}, 1);
  model.field[0].weight[3] = NAN;
  EXPECT_THAT(ConvMisfit(model), HasSubstr("the field has a weight"));
  model = testing::RandomConvModel(8, 12, 12, {12}, {8}, 1);
  model.field.back().outputs = 7;
  EXPECT_THAT(ConvMisfit(model), HasSubstr("do not fit each other"));
  model.field = model.correction.value();
  EXPECT_THAT(ConvMisfit(model), HasSubstr("reads more than state and depth"));
}

}  // namespace
}  // namespace hyperserve::kernels
