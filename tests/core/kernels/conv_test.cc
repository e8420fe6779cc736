// The fused convolution kernel against its twin, and the promises of its header.
#include "core/kernels/conv/conv.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "core/kernels/conv/conv_fit.h"
#include "core/kernels/conv/conv_model.h"
#include "core/kernels/conv/conv_rows.h"
#include "core/kernels/conv/conv_twin.h"
#include "core/ode/tableau.h"
#include "core/plan/method.h"
#include "tests/core/kernels/conv_fixture.h"
#include "tests/core/kernels/conv_nets.h"

namespace hyperserve::kernels {
namespace {

using images::ElementsOf;
using images::Error;
using images::HyperHeun;
using images::Normals;
using images::Packed;
using images::Solved;
using images::TwinEnds;
using testing::RandomConvModel;
using testing::RandomConvNet;
using testing::RandomConvReadout;
using testing::RandomConvTable;

// Whether an image may have several blocks; not where the code that runs is that of older devices.
bool CodeHasClusters() {
  return Packed(RandomConvModel(8, 16, 16, {8}, {8}, 1)).blocks().size() > 1;
}

// The gate of tier fast: f within 1e-3. An Euler step of one is z + f(z). Rounding an operand to
// fp16 errs by 2^-11 at most and 2^-12.8 of it in the mean square, in weights and inputs of each
// layer: measured 3e-4 to 6e-4.
TEST(ConvTest, OneEvaluationIsThatOfTheTwin) {
  for (const auto& [channels, height, width] : {std::array{32, 28, 28}, std::array{8, 9, 11},
                                                std::array{20, 16, 16}, std::array{3, 3, 3}}) {
    // So many channels of the largest images want the memory of two multiprocessors.
    const int widest = channels < 32 || CodeHasClusters() ? 64 : 46;
    const ConvModel model = RandomConvModel(channels, height, width, {46, widest}, {24}, 1);
    const Packed packed(model);
    const std::vector<float> z0 = Normals(2 * ElementsOf(model), 2);
    for (const int blocks : packed.blocks()) {
      const Solved solved = packed.Solve(ConvPlan{}, z0, blocks);
      EXPECT_LT(Error(model, {}, 1.0, z0, solved.z), 1e-3)
          << channels << " x " << height << " x " << width << ", " << blocks << " blocks";
      EXPECT_EQ(solved.unfit, std::vector<uint8_t>(2));
    }
  }
}

TEST(ConvTest, OneEvaluationOfEveryActivation) {
  for (const ConvActivation activation :
       {ConvActivation::kTanh, ConvActivation::kSilu, ConvActivation::kRectifier}) {
    ConvModel model = RandomConvModel(20, 16, 12, {}, {24}, 1);
    model.field = RandomConvNet(activation, {ConvInput::kBefore}, model, {28, 46, 64}, 9);
    const Packed packed(model);
    const std::vector<float> z0 = Normals(2 * ElementsOf(model), 10);
    for (const int blocks : packed.blocks()) {
      EXPECT_LT(Error(model, {}, 1.0, z0, packed.Solve(ConvPlan{}, z0, blocks).z), 1e-3)
          << "activation " << static_cast<int>(activation) << ", " << blocks << " blocks";
    }
  }
}

// Two steps of nets that are each within 1e-3; rk4 and heun keep slopes in the scratch memory.
TEST(ConvTest, PlansAreThoseOfTheTwin) {
  ConvModel model = RandomConvModel(12, 14, 10, {20}, {24, 16}, 3);
  model.correction = RandomConvNet(ConvActivation::kRectifier,
                                   {ConvInput::kStep, ConvInput::kSlope2, ConvInput::kState0,
                                    ConvInput::kBefore, ConvInput::kSlope1, ConvInput::kDepth},
                                   model, {30}, 4);
  model.field = RandomConvNet(ConvActivation::kSoftplus, {ConvInput::kBefore, ConvInput::kDepth},
                              model, {20, 36}, 5);
  const Packed packed(model);
  const std::vector<float> z0 = Normals(3 * ElementsOf(model), 6);
  for (const ConvPlan& plan : {HyperHeun(2), ConvPlan{.tableau = kRk4Tableau, .steps = 2},
                               ConvPlan{.steps = 3, .s0 = 0.25, .s1 = 0.75}}) {
    for (const int blocks : packed.blocks()) {
      EXPECT_LT(Error(model, plan, 0.0, z0, packed.Solve(plan, z0, blocks).z), 2e-3)
          << plan.tableau.order << ", " << blocks << " blocks";
    }
  }
}

// A field of one layer ends where it begins.
TEST(ConvTest, NetsOfOneLayer) {
  ConvModel model{.channels = 5, .height = 12, .width = 7, .field = {}};
  model.field = RandomConvNet(ConvActivation::kNone, {ConvInput::kBefore}, model, {}, 11);
  model.correction = RandomConvNet(
      ConvActivation::kNone,
      {ConvInput::kSlope1, ConvInput::kBefore, ConvInput::kState0, ConvInput::kSlope2}, model, {},
      12);
  const Packed packed(model);
  const std::vector<float> z0 = Normals(3 * ElementsOf(model), 13);
  for (const int blocks : packed.blocks()) {
    EXPECT_LT(Error(model, HyperHeun(3), 0.0, z0, packed.Solve(HyperHeun(3), z0, blocks).z), 2e-3)
        << blocks << " blocks";
  }
}

// Operands of the maps are rounded to fp16 like those of f, but for what a_i keeps of the state.
TEST(ConvTest, TablesAreThoseOfTheTwin) {
  for (const auto& [channels, height, width] : {std::array{32, 28, 28}, std::array{12, 14, 10}}) {
    for (const int evaluations : {1, 3, kConvEvaluationsMax}) {
      ConvModel model{.channels = channels, .height = height, .width = width};
      model.field = RandomConvNet(ConvActivation::kSoftplus,
                                  {ConvInput::kBefore, ConvInput::kDepth}, model, {46, 20}, 14);
      model.table = RandomConvTable(channels, evaluations, 15);
      const Packed packed(model);
      const std::vector<float> z0 = Normals(2 * ElementsOf(model), 16);
      for (const int blocks : packed.blocks()) {
        const Solved solved = packed.Solve(ConvPlan{}, z0, blocks);
        EXPECT_LT(Error(model, ConvPlan{}, 0.0, z0, solved.z), 1e-3)
            << channels << " channels, " << evaluations << " evaluations, " << blocks << " blocks";
        EXPECT_EQ(solved.unfit, std::vector<uint8_t>(2));
      }
    }
  }
}

struct ReadoutCase {
  int channels, height, width, evaluations, scale;
  std::vector<int> widths;
};

// A field as wide as that of the shipped models, without which there is no room for wide readouts.
ConvModel WithReadout(const ReadoutCase& one) {
  ConvModel model{.channels = one.channels, .height = one.height, .width = one.width};
  model.field = RandomConvNet(ConvActivation::kSoftplus, {ConvInput::kBefore}, model, {46, 46}, 21);
  model.table = RandomConvTable(one.channels, one.evaluations, 22);
  model.readout = RandomConvReadout(one.channels, one.evaluations, one.widths, one.scale, 23);
  return model;
}

// The readout's own error is that of its products.
void ExpectReadoutOfTheTwin(const ReadoutCase& one) {
  const ConvModel model = WithReadout(one);
  const Packed packed(model);
  const std::vector<float> z0 = Normals(3 * ElementsOf(model), 24);
  const std::vector<double> ends = TwinEnds(model, ConvPlan{}, z0);
  for (const int blocks : packed.blocks()) {
    const Solved solved = packed.Solve(ConvPlan{}, z0, blocks);
    EXPECT_LT(Error(ends, 0.0, z0, solved.z), 1e-3)
        << one.channels << " channels, " << one.evaluations << " evaluations, " << one.widths.back()
        << " hidden, scale " << one.scale << ", " << blocks << " blocks";
    EXPECT_EQ(solved.unfit, std::vector<uint8_t>(3));
  }
}

TEST(ConvTest, ReadoutsAreThoseOfTheTwin) {
  for (const int evaluations : {1, 3, kConvEvaluationsMax}) {
    const std::vector<int> few(evaluations == 1 ? 1 : 4, 24);
    ExpectReadoutOfTheTwin({12, 14, 10, evaluations, 2, few});
    ExpectReadoutOfTheTwin({32, 28, 28, evaluations, 2, std::vector<int>(few.size(), 32)});
  }
}

// Those of models/fashion and models/cifar, and others: parts of 32 hidden channels.
TEST(ConvTest, WideReadoutsAreThoseOfTheTwin) {
  for (const int evaluations : {1, 4, kConvEvaluationsMax}) {
    ExpectReadoutOfTheTwin({32, 28, 28, evaluations, 2, {64, 64, 64, 64}});
    ExpectReadoutOfTheTwin({32, 28, 28, evaluations, 2, {56, 56, 56, 56, 56}});
    ExpectReadoutOfTheTwin({32, 16, 16, evaluations, 2, {48, 48, 48, 48}});
  }
  ExpectReadoutOfTheTwin({12, 14, 10, 2, 2, {40}});
  ExpectReadoutOfTheTwin({32, 28, 28, 2, 2, {33, 64, 8, 56, 64, 20}});
}

TEST(ConvTest, ReadoutsAtTheWholeResolutionAreThoseOfTheTwin) {
  for (const int evaluations : {1, 4, kConvEvaluationsMax}) {
    ExpectReadoutOfTheTwin({32, 16, 16, evaluations, 1, {32, 32, 32, 32, 32}});
    ExpectReadoutOfTheTwin({7, 11, 9, evaluations, 1, {28, 64, 40}});
  }
  ExpectReadoutOfTheTwin({32, 16, 16, 2, 1, {32, 32, 32, 32, 24}});
  ExpectReadoutOfTheTwin({32, 28, 28, 2, 1, {32, 32}});
}

// In the mean over a solve f errs by less than 1e-3, and so does z1 - z0. The rounding of f is far
// below these tolerances, so that the steps are the twin's, but for one where a norm is near 1.
TEST(ConvTest, AdaptiveSolvesAreThoseOfTheTwin) {
  for (const auto& [channels, height, width] : {std::array{32, 28, 28}, std::array{7, 10, 13}}) {
    ConvModel model{.channels = channels, .height = height, .width = width};
    model.field = RandomConvNet(ConvActivation::kSoftplus, {ConvInput::kBefore, ConvInput::kDepth},
                                model, {46, 20}, 17);
    const Packed packed(model);
    const std::vector<float> z0 = Normals(ElementsOf(model), 18);
    for (const auto& [method, tolerance] :
         {std::pair{Method::kDopri5, 3e-3}, std::pair{Method::kBosh3, 1e-3}}) {
      const ConvAdaptivePlan plan{
          .tableau = TableauFor({.method = method}), .rtol = tolerance, .atol = tolerance};
      const TwinConvEnd end = TwinConvSolve(model, plan, std::vector<double>(z0.begin(), z0.end()));
      for (const int blocks : packed.blocks()) {
        const Solved solved = packed.Solve(plan, z0, blocks);
        EXPECT_EQ(solved.unfit, std::vector<uint8_t>{kRowFits});
        EXPECT_NEAR(solved.evaluations[0], end.evaluations, plan.tableau.stages() - 1);
        if (solved.evaluations[0] != end.evaluations) continue;  // another end within tolerance
        double error = 0.0, norm = 0.0;
        for (size_t i = 0; i < end.z.size(); ++i) {
          error += std::pow(solved.z[i] - end.z[i], 2.0);
          norm += std::pow(end.z[i] - z0[i], 2.0);
        }
        EXPECT_LT(std::sqrt(error / norm), 1e-3) << channels << ", " << blocks << " blocks";
      }
    }
  }
}

// A block that has used up its evaluations leaves its last row.
TEST(ConvTest, AdaptiveRowsBeyondALaunchAreUnfinished) {
  const ConvModel model = RandomConvModel(8, 12, 12, {16}, {8}, 9);
  const Packed packed(model);
  const std::vector<float> z0 = Normals(ElementsOf(model), 19);
  const Solved alone = packed.Solve(ConvAdaptivePlan{}, z0);
  const int ending = kConvEvaluationsOfLaunch / alone.evaluations[0];
  const int solvers = packed.program().multiprocessors;
  std::vector<float> all;
  for (int i = 0; i < (ending + 1) * solvers; ++i) all.insert(all.end(), z0.begin(), z0.end());
  const Solved solved = packed.Solve(ConvAdaptivePlan{}, all, 1);
  for (int row = 0; row < (ending + 1) * solvers; ++row) {
    ASSERT_EQ(solved.unfit[row], row < ending * solvers ? kRowFits : kRowUnfinished) << row;
    if (solved.unfit[row] != kRowFits) continue;
    ASSERT_TRUE(std::equal(alone.z.begin(), alone.z.end(), solved.z.begin() + row * z0.size()));
  }
}

// Bit for bit: again, alone, in any company, and however many blocks share an image.
void ExpectBitsOfItsOwn(const ConvModel& model, const ConvTask& task) {
  const Packed packed(model);
  const size_t elements = ElementsOf(model);
  const std::vector<float> z0 = Normals(300 * elements, 8);
  const std::vector<float> all = packed.Solve(task, z0).z;
  EXPECT_EQ(packed.Solve(task, z0).z, all);
  // Few enough that adaptive solves end in a launch of clusters.
  const std::vector<float> few(z0.begin(), z0.begin() + 40 * elements);
  const std::vector<float> of_few(all.begin(), all.begin() + 40 * elements);
  for (const int blocks : packed.blocks()) EXPECT_EQ(packed.Solve(task, few, blocks).z, of_few);
  for (const size_t row : {0, 17, 299}) {
    const std::vector<float> alone(z0.begin() + row * elements, z0.begin() + (row + 1) * elements);
    const std::vector<float> of_all(all.begin() + row * elements,
                                    all.begin() + (row + 1) * elements);
    EXPECT_EQ(packed.Solve(task, alone).z, of_all);
  }
}

TEST(ConvTest, ARowsBitsAreItsOwn) {
  ConvModel model = RandomConvModel(32, 28, 28, {46, 46}, {32, 32}, 7);
  ExpectBitsOfItsOwn(model, HyperHeun(1));
  model.correction.reset();
  ExpectBitsOfItsOwn(model, ConvAdaptivePlan{});
  model.table = RandomConvTable(32, 3, 20);
  ExpectBitsOfItsOwn(model, ConvPlan{});
  for (const int hidden : {32, 64}) {
    model.readout = RandomConvReadout(32, 3, hidden, 3, 25);
    ExpectBitsOfItsOwn(model, ConvPlan{});
  }
  ExpectBitsOfItsOwn(WithReadout({32, 16, 16, 3, 1, {32, 64, 32}}), ConvPlan{});
}

TEST(ConvTest, RowsThatFp16CannotCarryAreMarked) {
  const ConvModel model = RandomConvModel(8, 12, 12, {16}, {8}, 9);
  const Packed packed(model);
  const size_t elements = ElementsOf(model);
  std::vector<float> z0 = Normals(6 * elements, 10);
  z0[elements + 5] = 1e5f;  // the state itself
  for (size_t i = 0; i < elements; ++i) z0[3 * elements + i] *= 60000.0f / 4.0f;  // f of it
  z0[4 * elements] = NAN;
  const ConvPlan plan{.steps = 2, .hypersolved = true};
  for (const int blocks : packed.blocks()) {
    const Solved solved = packed.Solve(plan, z0, blocks);
    EXPECT_EQ(solved.unfit, (std::vector<uint8_t>{0, 1, 0, 1, 1, 0})) << blocks;
    const Solved alone = packed.Solve(plan, {z0.begin() + 5 * elements, z0.end()}, blocks);
    EXPECT_TRUE(std::equal(alone.z.begin(), alone.z.end(), solved.z.begin() + 5 * elements));
    EXPECT_EQ(packed.Solve(ConvAdaptivePlan{}, z0, blocks).unfit,
              (std::vector<uint8_t>{0, 1, 0, 1, 1, 0}))
        << blocks;
  }
}

}  // namespace
}  // namespace hyperserve::kernels
