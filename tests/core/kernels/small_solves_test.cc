// The smallest solves that reach every kernel and, within it, more than one tile for each warpgroup
// and more than one row for each block. Each against its twin, and all under compute-sanitizer,
// which the other tests keep busy for many minutes: sanitizer_*_test in CMakeLists.txt.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/io/philox.h"
#include "core/kernels/conv/conv_model.h"
#include "core/kernels/conv/conv_twin.h"
#include "core/kernels/flow/flow_model.h"
#include "core/kernels/flow/flow_rows.h"
#include "core/kernels/flow/flow_twin.h"
#include "core/kernels/philox.h"
#include "core/kernels/row_errors.h"
#include "core/ode/tableau.h"
#include "core/plan/method.h"
#include "tests/core/kernels/conv_fixture.h"
#include "tests/core/kernels/conv_nets.h"
#include "tests/core/kernels/device_array.h"
#include "tests/core/kernels/flow_fixture.h"

namespace hyperserve::kernels {
namespace {

using testing::RandomConvModel;
using testing::RandomConvNet;
using testing::RandomConvReadout;
using testing::RandomConvTable;

// The whole image has ten tiles, a half five, a sixteenth one.
constexpr int kHeight = 28, kWidth = 20;

constexpr int kMostBlocks = 16;

// Small solves by images that have so many blocks each.
class SmallConvs : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
      GTEST_SKIP() << "no CUDA device";
    }
  }
  // The hidden layers have all the widths that kernels have code for. The most blocks take the
  // sanitizer ten times as long, so there it is a single layer, and one image.
  static ConvModel Model(const std::vector<int>& hidden = {20, 46, 64}) {
    ConvModel model{.channels = 8, .height = kHeight, .width = kWidth};
    model.field = RandomConvNet(ConvActivation::kSoftplus, {ConvInput::kBefore, ConvInput::kDepth},
                                model, GetParam() == kMostBlocks ? std::vector{20} : hidden, 31);
    return model;
  }
  // One after the other in the same blocks.
  static images::Solved Solve(const ConvModel& model, const ConvTask& task,
                              const std::vector<float>& z0) {
    const images::Packed packed(model, 1);
    const std::vector<int> blocks = packed.blocks();
    if (std::ranges::count(blocks, GetParam()) > 0) return packed.Solve(task, z0, GetParam());
    EXPECT_TRUE(blocks.size() == 1 || GetParam() == kMostBlocks) << "it does not fit";
    return {};
  }
  static size_t Images() { return GetParam() == kMostBlocks ? 1 : 2; }
  static std::vector<float> Starts(const ConvModel& model) {
    return images::Normals(Images() * images::ElementsOf(model), 32);
  }
  static void ExpectTwin(const ConvModel& model, const ConvPlan& plan) {
    const std::vector<float> z0 = Starts(model);
    const images::Solved solved = Solve(model, plan, z0);
    if (solved.z.empty()) GTEST_SKIP() << "the device does not take so many blocks";
    EXPECT_LT(images::Error(model, plan, 0.0, z0, solved.z), 2e-3);
    EXPECT_EQ(solved.unfit, std::vector<uint8_t>(Images()));
  }
};

INSTANTIATE_TEST_SUITE_P(Blocks, SmallConvs, ::testing::Values(1, 2, 3, kMostBlocks),
                         [](const auto& one) { return std::to_string(one.param); });

// With one block the kernel of steps, with several the relay.
TEST_P(SmallConvs, Steps) {
  ConvModel model = Model({46, 20});
  model.correction =
      RandomConvNet(ConvActivation::kRectifier,
                    {ConvInput::kBefore, ConvInput::kSlope1, ConvInput::kStep}, model, {24}, 33);
  ExpectTwin(model, images::HyperHeun(1));
}

TEST_P(SmallConvs, Table) {
  ConvModel model = Model();
  model.table = RandomConvTable(model.channels, 2, 34);
  ExpectTwin(model, {});
}

TEST_P(SmallConvs, TableWithAReadoutAtHalfTheResolution) {
  ConvModel model = Model({46, 46});
  model.table = RandomConvTable(model.channels, 2, 36);
  model.readout = RandomConvReadout(model.channels, 2, {48, 64, 24}, 2, 37);
  ExpectTwin(model, {});
}

TEST_P(SmallConvs, TableWithAReadoutAtTheWholeResolution) {
  ConvModel model = Model({46});
  model.table = RandomConvTable(model.channels, 2, 39);
  model.readout = RandomConvReadout(model.channels, 2, {28, 32}, 1, 40);
  ExpectTwin(model, {});
}

TEST_P(SmallConvs, Adaptive) {
  const ConvModel model = Model();
  const std::vector<float> z0 = Starts(model);
  const ConvAdaptivePlan plan{
      .tableau = TableauFor({.method = Method::kBosh3}), .rtol = 3e-2, .atol = 3e-2};
  const images::Solved solved = Solve(model, plan, z0);
  if (solved.z.empty()) GTEST_SKIP() << "the device does not take so many blocks";
  EXPECT_EQ(solved.unfit, std::vector<uint8_t>(Images()));
  const size_t elements = images::ElementsOf(model);
  for (size_t row = 0; row < Images(); ++row) {
    const auto begin = z0.begin() + static_cast<std::ptrdiff_t>(row * elements);
    const std::vector<double> from(begin, begin + static_cast<std::ptrdiff_t>(elements));
    const TwinConvEnd end = TwinConvSolve(model, plan, from);
    EXPECT_NEAR(solved.evaluations[row], end.evaluations, plan.tableau.stages() - 1);
    if (solved.evaluations[row] != end.evaluations) continue;  // another end within tolerance
    double error = 0.0, norm = 0.0;
    for (size_t i = 0; i < elements; ++i) {
      error += std::pow(solved.z[row * elements + i] - end.z[i], 2.0);
      norm += std::pow(end.z[i], 2.0);
    }
    EXPECT_LT(std::sqrt(error / norm), 2e-3);
  }
}

using SmallFlows = FlowTest;

// Rows for one block that shares them, and for blocks whose warps have their own.
TEST_F(SmallFlows, Steps) {
  for (const Case& of : Cases()) {
    const FlowModel model = ModelOf(of);
    for (const int64_t rows : {3, 70}) {
      const std::vector<float> z0 = Normals(rows * of.dimensions, 41);
      EXPECT_LT(Error(model, of.plan, z0, Solve(model, of.plan, rows, z0, 0, 1).z, 0.0), 2e-3);
    }
  }
}

TEST_F(SmallFlows, LogDensities) {
  for (const Case& of : Cases()) {
    if (of.dimensions > kFlowTangents || of.hidden.size() > 3) continue;
    const FlowModel model = ModelOf(of);
    FlowPlan plan = of.plan;
    plan.density = plan.hypersolved ? FlowDensity::kStepMap : FlowDensity::kDivergence;
    const std::vector<float> z0 = Normals(70 * of.dimensions, 42);
    const Solved solved = Solve(model, plan, 70, z0, 0, 1);
    for (size_t row = 0; row < 70; ++row) {
      const auto begin = z0.begin() + static_cast<std::ptrdiff_t>(row) * of.dimensions;
      const double twin =
          TwinLogDensity(model, plan, std::vector<double>(begin, begin + of.dimensions));
      EXPECT_NEAR(solved.log_density[row], twin, 0.1);
    }
  }
}

TEST_F(SmallFlows, Tables) {
  for (const std::vector<int>& readout : {std::vector<int>{}, std::vector{32, 40}}) {
    const FlowModel model = TableModelOf(FlowActivation::kSoftplus, 2, 3, readout);
    const FlowPlan plan{.hypersolved = true, .s0 = 0.25};
    const std::vector<float> z0 = Normals(70 * 2, 43);
    EXPECT_LT(Error(model, plan, z0, Solve(model, plan, 70, z0, 0, 1).z, 0.0), 2e-3);
  }
}

// More rows than are under way, so that rows that wait follow others.
TEST_F(SmallFlows, Adaptive) {
  for (const FlowActivation activation : {FlowActivation::kSoftplus, FlowActivation::kTanh,
                                          FlowActivation::kSilu, FlowActivation::kRectifier}) {
    const FlowModel model =
        ModelOf({.activation = activation, .dimensions = 2, .hidden = {64, 100}, .depth = true});
    const FlowAdaptivePlan plan{.rtol = 1e-2, .atol = 1e-2};
    const FlowPlan reference{.tableau = kDopri5Tableau, .steps = 16};
    constexpr int64_t kRows = 300;
    const std::vector<float> z0 = Normals(2 * kRows, 44);
    const Solved solved = Solve(model, plan, kRows, z0, 0, 1);
    EXPECT_EQ(solved.unfit, std::vector<uint8_t>(kRows, kRowFits));
    EXPECT_LT(Error(model, reference, z0, solved.z, 0.0), 0.1);
  }
}

using SmallNumbers = FlowTest;

TEST_F(SmallNumbers, Normals) {
  constexpr int64_t kRows = 70, kDimensions = 5;
  std::vector<double> host(kRows * kDimensions);
  hyperserve::PhiloxNormals(7, 3, kRows, kDimensions, host);
  const DeviceArray<float> floats(std::vector<float>(host.size()));
  const DeviceArray<double> doubles(std::vector<double>(host.size()));
  ASSERT_EQ(PhiloxNormals(7, 3, kRows, kDimensions, floats.data(), nullptr), cudaSuccess);
  ASSERT_EQ(PhiloxNormals(7, 3, kRows, kDimensions, doubles.data(), nullptr), cudaSuccess);
  const std::vector<float> of_float = floats.Values();
  const std::vector<double> of_double = doubles.Values();
  for (size_t i = 0; i < host.size(); ++i) {
    EXPECT_NEAR(of_float[i], host[i], 5e-7);
    EXPECT_NEAR(of_double[i], host[i], 1e-14);
  }
}

template <class Number>
void ExpectErrorSquares() {
  constexpr int64_t kRows = 3, kElements = 300;
  std::vector<Number> error, z0, z1;
  std::vector<double> sums(kRows);
  for (int64_t i = 0; i < kRows * kElements; ++i) {
    error.push_back(static_cast<Number>(0.001 * static_cast<double>(i % 7)));
    z0.push_back(static_cast<Number>(i % 5));
    z1.push_back(static_cast<Number>(-(i % 11)));
    const double size = std::fmax(std::fabs(z0.back()), std::fabs(z1.back()));
    sums[static_cast<size_t>(i / kElements)] += std::pow(error.back() / (1e-2 + 1e-3 * size), 2.0);
  }
  const DeviceArray<double> rtol(std::vector(kRows, 1e-3)), atol(std::vector(kRows, 1e-2));
  const DeviceArray<double> out(std::vector<double>{0.0, 0.0, 0.0});
  const DeviceArray<Number> errors(error), from(z0), to(z1);
  const RowErrorOptions options{
      .rows = kRows, .elements = kElements, .rtol = rtol.data(), .atol = atol.data()};
  ASSERT_EQ(RowErrorSquares(options, errors.data(), from.data(), to.data(), out.data(), nullptr),
            cudaSuccess);
  const std::vector<double> found = out.Values();
  for (size_t row = 0; row < kRows; ++row) EXPECT_NEAR(found[row] / sums[row], 1.0, 1e-12);
}

TEST_F(SmallNumbers, ErrorSquares) {
  ExpectErrorSquares<float>();
  ExpectErrorSquares<double>();
}

}  // namespace
}  // namespace hyperserve::kernels
