// The flow kernel's tests: random models, solves of them on the device, errors against the twin.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <type_traits>
#include <vector>

#include "core/kernels/flow/flow.h"
#include "core/kernels/flow/flow_image.h"
#include "core/kernels/flow/flow_model.h"
#include "core/kernels/flow/flow_rows.h"
#include "core/kernels/flow/flow_twin.h"
#include "core/ode/tableau.h"
#include "core/plan/method.h"
#include "tests/core/kernels/device_array.h"
#include "tests/core/kernels/flow_nets.h"

namespace hyperserve::kernels {

using testing::DeviceArray;
using testing::RandomFlowNet;

inline constexpr float kUntouched = 12345.0f;

struct Solved {
  std::vector<float> z, log_density;
  std::vector<int32_t> evaluations;
  std::vector<uint8_t> unfit;
};

// Rows of z0, or of noise from `first_row` on where there is none. Nothing beyond the last row is
// written. Not more multiprocessors than `multiprocessors_max` have work.
template <class Plan>
Solved Solve(const FlowModel& model, const Plan& plan, int64_t count,
             const std::optional<std::vector<float>>& z0, uint64_t first_row = 0,
             int multiprocessors_max = std::numeric_limits<int>::max()) {
  constexpr bool kAdaptive = std::is_same_v<Plan, FlowAdaptivePlan>;
  const FlowImage image = PackFlow(model, kAdaptive ? FlowPrecision::kExact : FlowPrecision::kFast);
  const DeviceArray<std::byte> bytes(image.bytes);
  FlowProgram program;
  EXPECT_EQ(PrepareFlow(image.layout, bytes.data(), &program), cudaSuccess);
  program.multiprocessors = std::min(program.multiprocessors, multiprocessors_max);
  const size_t numbers = static_cast<size_t>(count * model.dimensions);
  const DeviceArray<float> from(z0.value_or(std::vector<float>(1)));
  const DeviceArray<float> to(std::vector<float>(numbers + 64, kUntouched));
  const DeviceArray<float> log_density(
      std::vector<float>(static_cast<size_t>(count) + 64, kUntouched));
  const DeviceArray<int32_t> evaluations(std::vector<int32_t>(static_cast<size_t>(count)));
  const DeviceArray<uint8_t> unfit(std::vector<uint8_t>(static_cast<size_t>(count) + 64, 77));
  const FlowRows rows{.count = count,
                      .z0 = z0 ? from.data() : nullptr,
                      .seed = 0x123456789abcdef0,
                      .first_row = first_row,
                      .z1 = to.data(),
                      .log_density = log_density.data(),
                      .evaluations = evaluations.data(),
                      .unfit = unfit.data()};
  EXPECT_EQ(SolveFlow(program, plan, rows, nullptr), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  Solved solved{.z = to.Values(),
                .log_density = log_density.Values(),
                .evaluations = evaluations.Values(),
                .unfit = unfit.Values()};
  for (size_t i = 0; i < 64; ++i) {
    EXPECT_EQ(solved.log_density[static_cast<size_t>(count) + i], kUntouched);
    EXPECT_EQ(solved.z[numbers + i], kUntouched);
    EXPECT_EQ(solved.unfit[static_cast<size_t>(count) + i], 77);
  }
  solved.z.resize(numbers);
  solved.log_density.resize(static_cast<size_t>(count));
  solved.unfit.resize(static_cast<size_t>(count));
  return solved;
}

inline std::vector<float> Normals(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

// Frobenius norm of the error of z1 - offset z0 over that of itself.
inline double Error(const FlowModel& model, const FlowPlan& plan, const std::vector<float>& z0,
                    const std::vector<float>& z1, double offset) {
  const size_t dimensions = static_cast<size_t>(model.dimensions);
  double error = 0.0, norm = 0.0;
  for (size_t row = 0; row < z0.size(); row += dimensions) {
    const std::vector<double> from(z0.begin() + static_cast<std::ptrdiff_t>(row),
                                   z0.begin() + static_cast<std::ptrdiff_t>(row + dimensions));
    const std::vector<double> to = TwinSolve(model, plan, from);
    for (size_t i = 0; i < dimensions; ++i) {
      error += std::pow(z1[row + i] - to[i], 2.0);
      norm += std::pow(to[i] - offset * from[i], 2.0);
    }
  }
  return std::sqrt(error / norm);
}

struct Case {
  FlowActivation activation;
  int dimensions;
  std::vector<int> hidden;
  bool depth;
  FlowPlan plan;
  std::vector<FlowInput> inputs;       // of the correction
  std::vector<int> correction_hidden;  // none: no correction
  FlowActivation correction_activation = FlowActivation::kRectifier;
  float gain = 2.0f;  // of the field's weights
};

inline FlowModel ModelOf(const Case& of) {
  const auto widths = [&](int inputs, const std::vector<int>& hidden) {
    std::vector<int> all = {inputs};
    all.insert(all.end(), hidden.begin(), hidden.end());
    all.push_back(of.dimensions);
    return all;
  };
  FlowModel model{.dimensions = of.dimensions, .field = {}, .correction = {}};
  std::vector<FlowInput> inputs = {FlowInput::kState};
  if (of.depth) inputs.push_back(FlowInput::kDepth);
  model.field = RandomFlowNet(of.activation, inputs, widths(of.dimensions + of.depth, of.hidden),
                              11, of.gain);
  if (!of.correction_hidden.empty()) {
    int width = 0;
    for (const FlowInput input : of.inputs) {
      width += input == FlowInput::kStep || input == FlowInput::kDepth ? 1 : of.dimensions;
    }
    model.correction =
        RandomFlowNet(of.correction_activation, of.inputs, widths(width, of.correction_hidden), 12);
  }
  return model;
}

// A model solved by a table of n evaluations; with a readout where it has hidden layers.
inline FlowModel TableModelOf(FlowActivation activation, int dimensions, int n,
                              const std::vector<int>& readout_hidden) {
  Case of{.activation = activation, .dimensions = dimensions, .hidden = {64, 100}, .depth = true};
  FlowModel model = ModelOf(of);
  std::mt19937 random(21);
  std::uniform_real_distribution<float> uniform(-0.3f, 0.3f);
  FlowTable& table = model.table.emplace();
  for (int i = 0; i < n; ++i) {
    table.nodes.push_back(0.25 + 0.7 * i / n);
    for (int column = 0; column < i + 2; ++column) {
      for (int at = 0; at < dimensions * dimensions; ++at) {
        const bool diagonal = at % (dimensions + 1) == 0;
        table.coefficients.push_back(uniform(random) + (column == 0 && diagonal ? 1.0f : 0.0f));
      }
    }
    for (int d = 0; d < dimensions; ++d) table.offset.push_back(uniform(random));
  }
  if (readout_hidden.empty()) return model;
  std::vector<int> widths = {(2 + n) * dimensions};
  widths.insert(widths.end(), readout_hidden.begin(), readout_hidden.end());
  widths.push_back(dimensions);
  model.correction =
      RandomFlowNet(FlowActivation::kRectifier,
                    {FlowInput::kSlopes, FlowInput::kState0, FlowInput::kState}, widths, 22, 0.5f);
  model.correction->slopes = n;
  return model;
}

inline FlowPlan PlanOf(Method method, int steps, double s1 = 1.0) {
  return {.tableau = TableauFor({.method = method}), .steps = steps, .s1 = s1};
}

inline std::vector<Case> Cases() {
  using A = FlowActivation;
  const std::vector<FlowInput> published = {FlowInput::kState, FlowInput::kSlope1,
                                            FlowInput::kStep};
  const std::vector<FlowInput> all = {FlowInput::kDepth,  FlowInput::kSlope2, FlowInput::kState0,
                                      FlowInput::kSlope1, FlowInput::kStep,   FlowInput::kState};
  std::vector<Case> cases = {
      {A::kSoftplus, 2, {128, 128, 128}, false, PlanOf(Method::kHeun, 1), published, {128}},
      {A::kSoftplus, 1, {128}, true, PlanOf(Method::kEuler, 3), {}, {}},
      {A::kSoftplus, 3, {100, 128}, true, PlanOf(Method::kRk4, 2), all, {40, 50}, A::kSoftplus},
      {A::kSoftplus,
       8,
       {128, 17, 128, 128, 96},
       false,
       PlanOf(Method::kDopri5, 1),
       {},
       {},
       {},
       1.0f},
      {A::kTanh, 2, {64, 64}, true, PlanOf(Method::kMidpoint, 4), published, {32}},
      {A::kTanh, 5, {128, 128}, false, PlanOf(Method::kHeun, 2), all, {64, 64}, A::kTanh},
      {A::kSilu, 2, {128, 128, 128}, true, PlanOf(Method::kRalston, 2), {FlowInput::kState0}, {9}},
      {A::kSilu, 8, {33, 64}, true, PlanOf(Method::kTsit5, 1), {}, {}},
      {A::kRectifier, 2, {128, 128}, true, PlanOf(Method::kRk3, 2), all, {128, 128}},
      {A::kRectifier, 4, {16}, false, PlanOf(Method::kBosh3, 2), {}, {}},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    cases[i].plan.hypersolved = !cases[i].correction_hidden.empty();
    cases[i].plan.against = i % 2 != 0;
    cases[i].plan.s0 = 0.25;
  }
  return cases;
}

class FlowTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
      GTEST_SKIP() << "no CUDA device";
    }
  }
};

}  // namespace hyperserve::kernels
