// The fused flow kernel against its twin, and the promises of its header.
#include "core/kernels/flow/flow.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "core/kernels/flow/flow_fit.h"
#include "core/kernels/flow/flow_image.h"
#include "core/kernels/flow/flow_model.h"
#include "core/kernels/flow/flow_rows.h"
#include "core/kernels/flow/flow_twin.h"
#include "core/kernels/philox.h"
#include "core/ode/tableau.h"
#include "core/plan/method.h"
#include "tests/core/kernels/flow_nets.h"

namespace hyperserve::kernels {
namespace {

using testing::RandomFlowNet;

constexpr float kUntouched = 12345.0f;

template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& values) : count_(values.size()) {
    EXPECT_EQ(cudaMalloc(&data_, count_ * sizeof(T) + 1), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice),
              cudaSuccess);
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return static_cast<T*>(data_); }
  std::vector<T> Values() const {
    std::vector<T> values(count_);
    EXPECT_EQ(cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost),
              cudaSuccess);
    return values;
  }

 private:
  void* data_ = nullptr;
  size_t count_;
};

struct Solved {
  std::vector<float> z;
  std::vector<uint8_t> unfit;
};

// Rows of z0, or of noise from `first_row` on where there is none. Nothing beyond the last row is
// written.
Solved Solve(const FlowModel& model, const FlowPlan& plan, int64_t count,
             const std::optional<std::vector<float>>& z0, uint64_t first_row = 0) {
  const FlowImage image = PackFlow(model);
  const DeviceArray<std::byte> bytes(image.bytes);
  FlowProgram program;
  EXPECT_EQ(PrepareFlow(image.layout, bytes.data(), &program), cudaSuccess);
  const size_t numbers = static_cast<size_t>(count * model.dimensions);
  const DeviceArray<float> from(z0.value_or(std::vector<float>(1)));
  const DeviceArray<float> to(std::vector<float>(numbers + 64, kUntouched));
  const DeviceArray<uint8_t> unfit(std::vector<uint8_t>(static_cast<size_t>(count) + 64, 77));
  const FlowRows rows{.count = count,
                      .z0 = z0 ? from.data() : nullptr,
                      .seed = 0x123456789abcdef0,
                      .first_row = first_row,
                      .z1 = to.data(),
                      .unfit = unfit.data()};
  EXPECT_EQ(SolveFlow(program, plan, rows, nullptr), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  Solved solved{.z = to.Values(), .unfit = unfit.Values()};
  for (size_t i = 0; i < 64; ++i) {
    EXPECT_EQ(solved.z[numbers + i], kUntouched);
    EXPECT_EQ(solved.unfit[static_cast<size_t>(count) + i], 77);
  }
  solved.z.resize(numbers);
  solved.unfit.resize(static_cast<size_t>(count));
  return solved;
}

std::vector<float> Normals(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

// Frobenius norm of the error of z1 - offset z0 over that of itself.
double Error(const FlowModel& model, const FlowPlan& plan, const std::vector<float>& z0,
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

FlowModel ModelOf(const Case& of) {
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

FlowPlan PlanOf(Method method, int steps, double s1 = 1.0) {
  return {.tableau = TableauFor({.method = method}), .steps = steps, .s1 = s1};
}

std::vector<Case> Cases() {
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

// The gate of the fast tier: one evaluation of f on 256 rows within 1e-3. An Euler step of one on
// [0, 1] is z + f(0, z).
TEST_F(FlowTest, OneEvaluationPassesTheGate) {
  for (const Case& of : Cases()) {
    const FlowModel model = ModelOf(of);
    const FlowPlan plan = PlanOf(Method::kEuler, 1);
    const std::vector<float> z0 = Normals(256 * of.dimensions, std::random_device()());
    const double error = Error(model, plan, z0, Solve(model, plan, 256, z0).z, 1.0);
    EXPECT_LT(error, 1e-3) << static_cast<int>(of.activation) << " " << of.dimensions;
    std::printf("  f: activation %d, %d dimensions, %zu hidden: %.2e\n",
                static_cast<int>(of.activation), of.dimensions, of.hidden.size(), error);
  }
}

// Errors of evaluations add up with the steps, and the state's own size is in the norm: the same
// 1e-3.
TEST_F(FlowTest, WholeSolvesAreThoseOfTheTwin) {
  for (const Case& of : Cases()) {
    const FlowModel model = ModelOf(of);
    ASSERT_EQ(FlowMisfit(model), "");
    const std::vector<float> z0 = Normals(256 * of.dimensions, 5);
    const Solved solved = Solve(model, of.plan, 256, z0);
    const double error = Error(model, of.plan, z0, solved.z, 0.0);
    EXPECT_LT(error, 1e-3) << static_cast<int>(of.activation) << " " << of.dimensions;
    for (const uint8_t unfit : solved.unfit) EXPECT_EQ(unfit, 0);
    std::printf("  z: activation %d, %d dimensions, %d steps of %d stages: %.2e\n",
                static_cast<int>(of.activation), of.dimensions, of.plan.steps,
                of.plan.tableau.solution_stages(), error);
  }
}

// More rows than the device holds at once, cut anywhere: the same bits.
TEST_F(FlowTest, ARowsBitsDoNotDependOnTheBatch) {
  for (const size_t which : {size_t{0}, size_t{2}, size_t{5}}) {
    const Case of = Cases()[which];
    const FlowModel model = ModelOf(of);
    const int64_t dimensions = of.dimensions, count = 70001;
    const std::vector<float> z0 = Normals(count * dimensions, 6);
    const Solved all = Solve(model, of.plan, count, z0), again = Solve(model, of.plan, count, z0);
    EXPECT_EQ(all.z, again.z);
    for (const int64_t begin : {int64_t{0}, int64_t{13}, count - 100}) {
      for (const int64_t rows : {1, 17, 100}) {
        const auto part = [&](const std::vector<float>& of_all) {
          return std::vector<float>(of_all.begin() + begin * dimensions,
                                    of_all.begin() + (begin + rows) * dimensions);
        };
        EXPECT_EQ(Solve(model, of.plan, rows, part(z0)).z, part(all.z));
      }
    }
    const Solved noise = Solve(model, of.plan, count, std::nullopt, 1000);
    const Solved part = Solve(model, of.plan, 77, std::nullopt, 1000 + 60000);
    EXPECT_EQ(part.z, std::vector<float>(noise.z.begin() + 60000 * dimensions,
                                         noise.z.begin() + 60077 * dimensions));
  }
}

// A field of zeros leaves the noise as it is. The promise of the wire is 1e-6; both are computed to
// 1e-9, so that only rounding to float differs.
TEST_F(FlowTest, NoiseIsThatOfPhilox) {
  for (const int dimensions : {1, 2, 3, 5, 8}) {
    Case of = Cases()[0];
    of.dimensions = dimensions;
    of.correction_hidden = {};
    FlowModel model = ModelOf(of);
    FlowLayer& last = model.field.layers.back();
    last.weight.assign(last.weight.size(), 0.0f);
    last.bias.assign(last.bias.size(), 0.0f);
    const int64_t count = 50000;
    const uint64_t first_row = (uint64_t{1} << 32) - 7;
    const Solved solved = Solve(model, PlanOf(Method::kEuler, 1), count, std::nullopt, first_row);
    const DeviceArray<float> expected(std::vector<float>(solved.z.size()));
    ASSERT_EQ(
        PhiloxNormals(0x123456789abcdef0, first_row, count, dimensions, expected.data(), nullptr),
        cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    const std::vector<float> normals = expected.Values();
    for (size_t i = 0; i < normals.size(); ++i) ASSERT_NEAR(solved.z[i], normals[i], 5e-7);
  }
}

TEST_F(FlowTest, RowsThatFp16CannotCarryAreNamed) {
  const FlowModel model = ModelOf(Cases()[0]);
  std::vector<float> z0 = Normals(2 * 100, 8);
  const float bad[] = {std::numeric_limits<float>::quiet_NaN(),
                       std::numeric_limits<float>::infinity(), -1e6f};
  for (size_t i = 0; i < 3; ++i) z0[2 * (30 * i + 5) + i % 2] = bad[i];
  const Solved solved = Solve(model, Cases()[0].plan, 100, z0);
  for (size_t row = 0; row < 100; ++row) {
    EXPECT_EQ(solved.unfit[row], row == 5 || row == 35 || row == 65) << row;
  }
}

TEST(FlowFit, SaysWhatDoesNotFit) {
  const FlowModel good = ModelOf(Cases()[0]);
  EXPECT_EQ(FlowMisfit(good), "");
  const auto misfit = [&](auto change) {
    FlowModel model = good;
    change(model);
    return FlowMisfit(model);
  };
  EXPECT_NE(misfit([](FlowModel& m) { m.dimensions = 9; }), "");
  EXPECT_NE(misfit([](FlowModel& m) { m.field.layers[1].weight[3] = NAN; }), "");
  EXPECT_NE(misfit([](FlowModel& m) { m.field.layers[0].weight[3] = 1e5f; }), "");
  EXPECT_NE(misfit([](FlowModel& m) { m.field.layers[2].bias.pop_back(); }), "");
  EXPECT_NE(misfit([](FlowModel& m) { m.field.inputs.push_back(FlowInput::kStep); }), "");
  EXPECT_NE(misfit([](FlowModel& m) { m.correction->layers[0].slopes[0] = -1.0f; }), "");
  EXPECT_NE(misfit([](FlowModel& m) { m.correction->activation = FlowActivation::kTanh; }), "");
  // Each layer multiplies by a hundred: fp16 ends at an input of about one.
  EXPECT_NE(misfit([](FlowModel& m) {
              for (size_t l = 0; l < 3; ++l) {
                for (float& w : m.field.layers[l].weight) w *= 60.0f;
              }
            }),
            "");
  EXPECT_NE(misfit([](FlowModel& m) {
              m.field.layers[0] = RandomFlowNet(m.field.activation, {}, {2, 129}, 1).layers[0];
            }),
            "");
}

}  // namespace
}  // namespace hyperserve::kernels
