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
  layer.activation = ConvActivation::kSilu;
  EXPECT_NEAR(TwinConvField(OneChannel(layer), 0.0, kImage)[3], -4 / (1 + std::exp(4)), 1e-15);
  layer.activation = ConvActivation::kTanh;
  EXPECT_NEAR(TwinConvField(OneChannel(layer), 0.0, kImage)[3], std::tanh(-4), 1e-15);
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

// x_1 = a_0 z + B_00 f(s_0, z) + c_0, over two channels; f(s, z) = z + s in the middle of an image.
TEST(ConvTwinTest, TablesAreMapsOverTheChannels) {
  ConvModel model{.channels = 2, .height = 3, .width = 3};
  ConvLayer layer{.inputs = {ConvInput::kBefore, ConvInput::kDepth}, .outputs = 2};
  layer.weight.resize(2 * 3 * 9);
  for (const int place : {4, 4 + 4 * 9}) layer.weight[static_cast<size_t>(place)] = 1.0f;
  for (const int place : {4 + 2 * 9, 4 + 5 * 9}) layer.weight[static_cast<size_t>(place)] = 1.0f;
  model.field = {layer};
  model.table = {.nodes = {0.5}, .coefficients = {1, 2, 3, 4, 0, 1, 2, 0}, .offset = {10, 20}};
  EXPECT_EQ(ConvMisfit(model), "");
  std::vector<double> z(kImage);
  z.insert(z.end(), 9, 1.0);
  const std::vector<double> x = TwinConvSolve(model, ConvPlan{}, z);
  for (size_t i = 0; i < 9; ++i) {
    EXPECT_NEAR(x[i], kImage[i] + 2 + 1.5 + 10, 1e-12);
    EXPECT_NEAR(x[9 + i], 3 * kImage[i] + 4 + 2 * (kImage[i] + 0.5) + 20, 1e-12);
  }
}

// One channel of 4x4: the hidden number is silu of a pixel of x_0 and of one of k_0, and goes into
// another pixel of x_1.
TEST(ConvTwinTest, AReadoutIsAtHalfTheResolution) {
  ConvModel model{.channels = 1, .height = 4, .width = 4};
  model.field = {
      {.inputs = {ConvInput::kBefore}, .outputs = 1, .weight = OneTap(4, 10.0f)}};  // 10 z
  model.table = {.nodes = {0.0}, .coefficients = {1, 0}, .offset = {0}};
  ConvReadout readout{.inputs = {ConvInput::kBefore, ConvInput::kSlopes, ConvInput::kState0},
                      .hidden = 1};
  readout.down.resize(12);
  readout.down[4 + 1] = 1.0f;  // of k_0: row 0, column 1
  readout.down[8 + 2] = 2.0f;  // of x_0: row 1, column 0
  readout.down_bias = {0.5f};
  readout.up = {0.0f, 0.0f, 0.0f, 3.0f};  // row 1, column 1
  readout.up_bias = {0.0f, 0.25f, 0.0f, 0.0f};
  model.readout = readout;
  EXPECT_EQ(ConvMisfit(model), "");
  std::vector<double> z(16);
  for (size_t i = 0; i < 16; ++i) z[i] = 0.01 * static_cast<double>(i);
  std::vector<double> wanted = z;
  for (const size_t corner : {0, 2, 8, 10}) {
    const double h = 10.0 * z[corner + 1] + 2.0 * z[corner + 4] + 0.5;
    wanted[corner + 1] += 0.25;
    wanted[corner + 5] += 3.0 * h / (1.0 + std::exp(-h));
  }
  const std::vector<double> x = TwinConvSolve(model, ConvPlan{}, z);
  for (size_t i = 0; i < 16; ++i) EXPECT_NEAR(x[i], wanted[i], 1e-12) << i;
}

// The same without halving: silu of x_0 at the pixel itself.
TEST(ConvTwinTest, AReadoutIsAtTheWholeResolution) {
  ConvModel model{.channels = 1, .height = 3, .width = 3};
  model.field = {{.inputs = {ConvInput::kBefore}, .outputs = 1, .weight = OneTap(4, 0.0f)}};
  model.table = {.nodes = {0.0}, .coefficients = {1, 0}, .offset = {0}};
  model.readout = ConvReadout{.inputs = {ConvInput::kState0},
                              .scale = 1,
                              .hidden = 2,
                              .down = {2.0f, 0.0f},
                              .down_bias = {0.5f, 0.0f},
                              .middle = {},
                              .up = {3.0f, 1.0f},
                              .up_bias = {0.25f}};
  EXPECT_EQ(ConvMisfit(model), "");
  const std::vector<double> x = TwinConvSolve(model, ConvPlan{}, kImage);
  for (size_t i = 0; i < kImage.size(); ++i) {
    const double h = 2.0 * kImage[i] + 0.5;
    EXPECT_NEAR(x[i], kImage[i] + 3.0 * h / (1.0 + std::exp(-h)) + 0.25, 1e-12);
  }
}

// f = z again: e z, within the tolerance and no better than it must.
TEST(ConvTwinTest, ErrorControlKeepsTheTolerance) {
  const ConvModel model =
      OneChannel({.inputs = {ConvInput::kBefore}, .outputs = 1, .weight = OneTap(4, 1.0f)});
  for (const double tolerance : {1e-3, 1e-6, 1e-9}) {
    const ConvAdaptivePlan plan{.rtol = tolerance, .atol = tolerance};
    const TwinConvEnd end = TwinConvSolve(model, plan, kImage);
    for (size_t i = 0; i < kImage.size(); ++i) {
      EXPECT_NEAR(end.z[i] / kImage[i], std::exp(1.0), 10 * tolerance);
    }
    EXPECT_EQ(end.evaluations % 6, 2);
    EXPECT_LT(end.evaluations, 2 + 6 * std::pow(1 / tolerance, 0.2) + 12);
  }
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
  model = testing::RandomConvModel(8, 12, 12, {12}, {8}, 1);
  model.table = testing::RandomConvTable(8, 2, 1);
  EXPECT_THAT(ConvMisfit(model), HasSubstr("a table has no one-step correction"));
  model = testing::RandomConvModel(8, 12, 12, {12}, {8}, 1);
  model.correction.reset();
  model.table = testing::RandomConvTable(8, 9, 1);
  EXPECT_THAT(ConvMisfit(model), HasSubstr("the table has 9 evaluations"));
  model.table = testing::RandomConvTable(7, 2, 1);
  EXPECT_THAT(ConvMisfit(model), HasSubstr("the table does not fit the state"));
  model.table = testing::RandomConvTable(8, 2, 1);
  model.readout = testing::RandomConvReadout(8, 2, 64, 5, 1);
  EXPECT_EQ(ConvMisfit(model), "");
  model.readout = testing::RandomConvReadout(8, 2, 65, 1, 1);
  EXPECT_THAT(ConvMisfit(model), HasSubstr("the table's net has 65 hidden channels; the fused "
                                           "kernel takes 1 to 64"));
  model.readout = testing::RandomConvReadout(8, 2, {64, 65}, 2, 1);
  EXPECT_THAT(ConvMisfit(model), HasSubstr("the table's net has a layer of 65 channels"));
  model.readout = testing::RandomConvReadout(8, 2, 8, 6, 1);
  EXPECT_THAT(ConvMisfit(model), HasSubstr("6 layers of 3x3; the fused kernel takes 5"));
  model.readout = testing::RandomConvReadout(8, 2, {8, 24, 16}, 1, 1);
  EXPECT_EQ(ConvMisfit(model), "");
  model.readout->scale = 3;
  EXPECT_THAT(ConvMisfit(model), HasSubstr("neither the whole nor half"));
  model.readout = testing::RandomConvReadout(8, 3, 8, 1, 1);
  EXPECT_THAT(ConvMisfit(model), HasSubstr("the table's net has layers that do not fit"));
  model.readout = testing::RandomConvReadout(8, 2, 8, 1, 1);
  model.readout->up[1] = NAN;
  EXPECT_THAT(ConvMisfit(model), HasSubstr("the table's net has a number beyond"));
  model = testing::RandomConvModel(8, 11, 12, {12}, {8}, 1);
  model.correction.reset();
  model.table = testing::RandomConvTable(8, 2, 1);
  model.readout = testing::RandomConvReadout(8, 2, 8, 1, 1);
  EXPECT_THAT(ConvMisfit(model), HasSubstr("a side that is odd"));
  model = testing::RandomConvModel(8, 12, 12, {12}, {8}, 1);
  model.field = model.correction.value();
  EXPECT_THAT(ConvMisfit(model), HasSubstr("reads more than state and depth"));
}

}  // namespace
}  // namespace hyperserve::kernels
