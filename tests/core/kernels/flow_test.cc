// The fused flow kernel against its twin, and the promises of its header.
#include "core/kernels/flow/flow.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include "core/kernels/flow/flow_fit.h"
#include "core/kernels/flow/flow_image.h"
#include "core/kernels/flow/flow_model.h"
#include "core/kernels/flow/flow_rows.h"
#include "core/kernels/flow/flow_twin.h"
#include "core/kernels/philox.h"
#include "core/plan/method.h"
#include "tests/core/kernels/flow_fixture.h"
#include "tests/core/kernels/flow_nets.h"

namespace hyperserve::kernels {
namespace {

// The mean error of log p.
double DensityError(const FlowModel& model, const FlowPlan& plan, const std::vector<float>& z0,
                    const std::vector<float>& log_density) {
  const auto dimensions = static_cast<std::ptrdiff_t>(model.dimensions);
  double error = 0.0;
  for (size_t row = 0; row < log_density.size(); ++row) {
    const auto begin = z0.begin() + static_cast<std::ptrdiff_t>(row) * dimensions;
    const std::vector<double> from(begin, begin + dimensions);
    error += std::fabs(log_density[row] - TwinLogDensity(model, plan, from));
  }
  return error / static_cast<double>(log_density.size());
}

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

// Tables of maps, with readouts and without, of no evaluations too.
TEST_F(FlowTest, TablesAreThoseOfTheTwin) {
  const struct {
    FlowActivation activation;
    int dimensions, n;
    std::vector<int> readout;
  } cases[] = {{FlowActivation::kSoftplus, 2, 3, {}},
               {FlowActivation::kTanh, 2, 4, {32, 40}},
               {FlowActivation::kSilu, 1, 1, {16}},
               {FlowActivation::kSoftplus, 2, 0, {16}},
               {FlowActivation::kRectifier, 5, 9, {64}}};
  for (const auto& of : cases) {
    const FlowModel model = TableModelOf(of.activation, of.dimensions, of.n, of.readout);
    ASSERT_EQ(FlowMisfit(model), "");
    const FlowPlan plan{.hypersolved = true, .against = of.n % 2 == 1, .s0 = 0.25};
    const std::vector<float> z0 = Normals(256 * of.dimensions, 16);
    const Solved solved = Solve(model, plan, 256, z0);
    EXPECT_LT(Error(model, plan, z0, solved.z, 0.0), 1e-3) << of.dimensions << " " << of.n;
  }
}

// A table is one map, that of the whole solve: the same bound on the mean error of log p as below.
TEST_F(FlowTest, LogDensitiesOfTablesAreThoseOfTheTwin) {
  const struct {
    FlowActivation activation;
    int dimensions, n;
    std::vector<int> readout;
  } cases[] = {{FlowActivation::kSoftplus, 2, 3, {}},
               {FlowActivation::kTanh, 2, 4, {32, 40}},
               {FlowActivation::kSilu, 1, 1, {16}},
               {FlowActivation::kSoftplus, 1, 3, {}},
               {FlowActivation::kSoftplus, 2, 0, {16}}};
  for (const auto& of : cases) {
    const FlowModel model = TableModelOf(of.activation, of.dimensions, of.n, of.readout);
    FlowPlan plan{.hypersolved = true, .against = of.n % 2 == 1, .s0 = 0.25};
    const std::vector<float> z0 = Normals(256 * of.dimensions, 17);
    const Solved without = Solve(model, plan, 256, z0);
    plan.density = FlowDensity::kStepMap;
    plan.to_data = of.n % 2 == 0;
    const Solved solved = Solve(model, plan, 256, z0);
    const double error = DensityError(model, plan, z0, solved.log_density);
    EXPECT_LT(error, 2e-3) << of.dimensions << " " << of.n;
    EXPECT_EQ(solved.z, without.z);
    std::printf("  log p of a table: activation %d, %d dimensions, %d evaluations: %.2e\n",
                static_cast<int>(of.activation), of.dimensions, of.n, error);
  }
}

// The cases that have a log-density.
std::vector<Case> DensityCases() {
  std::vector<Case> cases;
  for (Case of : Cases()) {
    if (of.dimensions > kFlowTangents) continue;
    of.plan.to_data = cases.size() % 2 == 0;
    of.plan.density = FlowDensity::kStepMap;
    cases.push_back(of);
    if (of.plan.hypersolved) continue;
    of.plan.density = FlowDensity::kDivergence;
    cases.push_back(of);
  }
  Case of = Cases()[9];
  of.dimensions = 2;
  of.plan.density = FlowDensity::kDivergence;
  cases.push_back(of);
  return cases;
}

// A tangent takes three roundings to fp16 a layer: the mean error of log p on 256 rows is at most
// 2e-3. States have the bits of a solve without it.
TEST_F(FlowTest, LogDensitiesAreThoseOfTheTwin) {
  for (const Case& of : DensityCases()) {
    const FlowModel model = ModelOf(of);
    const std::vector<float> z0 = Normals(256 * of.dimensions, 15);
    const Solved solved = Solve(model, of.plan, 256, z0);
    const double error = DensityError(model, of.plan, z0, solved.log_density);
    EXPECT_LT(error, 2e-3) << static_cast<int>(of.activation) << " " << of.dimensions;
    std::printf("  log p: activation %d, %d dimensions, density %d, %d steps of %d stages: %.2e\n",
                static_cast<int>(of.activation), of.dimensions, static_cast<int>(of.plan.density),
                of.plan.steps, of.plan.tableau.solution_stages(), error);
    FlowPlan plain = of.plan;
    plain.density = FlowDensity::kNone;
    EXPECT_EQ(solved.z, Solve(model, plain, 256, z0).z);
  }
}

// More rows than the device holds at once, cut anywhere, and so few that the warps of a block share
// them: the same bits.
TEST_F(FlowTest, ARowsBitsDoNotDependOnTheBatch) {
  for (const Case& of : {Cases()[0], Cases()[2], Cases()[3], Cases()[5], Cases()[7], Cases()[8],
                         Cases()[9], DensityCases()[0], DensityCases()[2]}) {
    const FlowModel model = ModelOf(of);
    const int64_t dimensions = of.dimensions, count = 70001;
    const std::vector<float> z0 = Normals(count * dimensions, 6);
    const Solved all = Solve(model, of.plan, count, z0), again = Solve(model, of.plan, count, z0);
    EXPECT_EQ(all.z, again.z);
    EXPECT_EQ(all.log_density, again.log_density);
    for (const int64_t begin : {int64_t{0}, int64_t{13}, count - 100}) {
      for (const int64_t rows : {1, 17, 100}) {
        const auto part = [&](const std::vector<float>& of_all) {
          return std::vector<float>(of_all.begin() + begin * dimensions,
                                    of_all.begin() + (begin + rows) * dimensions);
        };
        const Solved some = Solve(model, of.plan, rows, part(z0));
        EXPECT_EQ(some.z, part(all.z));
        EXPECT_TRUE(std::equal(some.log_density.begin(), some.log_density.end(),
                               all.log_density.begin() + begin));
      }
    }
    const Solved noise = Solve(model, of.plan, count, std::nullopt, 1000);
    const Solved part = Solve(model, of.plan, 77, std::nullopt, 1000 + 60000);
    EXPECT_EQ(part.z, std::vector<float>(noise.z.begin() + 60000 * dimensions,
                                         noise.z.begin() + 60077 * dimensions));
  }
}

// Launches of a thread that nobody waits for in between, on two streams.
TEST_F(FlowTest, LaunchesKeepTheirArguments) {
  const FlowModel model = ModelOf(Cases()[0]);
  const FlowPlan plan = Cases()[0].plan;
  const int64_t count = 4096, each = 256;
  const std::vector<float> all = Solve(model, plan, count, std::nullopt).z;
  const FlowImage image = PackFlow(model);
  const DeviceArray<std::byte> bytes(image.bytes);
  FlowProgram program;
  ASSERT_EQ(PrepareFlow(image.layout, bytes.data(), &program), cudaSuccess);
  const DeviceArray<float> to(std::vector<float>(all.size()));
  const DeviceArray<uint8_t> unfit{std::vector<uint8_t>(static_cast<size_t>(count))};
  cudaStream_t streams[2];
  for (cudaStream_t& stream : streams) ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  for (int64_t first = 0; first < count; first += each) {
    const FlowRows rows{.count = each,
                        .seed = 0x123456789abcdef0,
                        .first_row = static_cast<uint64_t>(first),
                        .z1 = to.data() + first * model.dimensions,
                        .unfit = unfit.data() + first};
    ASSERT_EQ(SolveFlow(program, plan, rows, streams[first / each % 2]), cudaSuccess);
  }
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(to.Values(), all);
  for (cudaStream_t stream : streams) ASSERT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

// A launch that fails leaves neither its error nor its arguments to the next one of the thread.
TEST_F(FlowTest, ALaunchAfterOneThatFailed) {
  const FlowModel model = ModelOf(Cases()[0]);
  const FlowPlan plan = Cases()[0].plan;
  const int64_t count = 256;
  const std::vector<float> all = Solve(model, plan, count, std::nullopt).z;
  const FlowImage image = PackFlow(model);
  const DeviceArray<std::byte> bytes(image.bytes);
  FlowProgram program;
  ASSERT_EQ(PrepareFlow(image.layout, bytes.data(), &program), cudaSuccess);
  const DeviceArray<float> wrong(std::vector<float>(all.size())),
      to(std::vector<float>(all.size()));
  const DeviceArray<uint8_t> unfit{std::vector<uint8_t>(static_cast<size_t>(count))};
  cudaStream_t stream;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  FlowRows rows{
      .count = count, .seed = 0x123456789abcdef0, .z1 = wrong.data(), .unfit = unfit.data()};
  FlowProgram too_large = program;
  too_large.layout.bytes += 1 << 20;  // more shared memory than a block may have
  EXPECT_NE(SolveFlow(too_large, plan, rows, stream), cudaSuccess);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  rows.z1 = to.data();
  ASSERT_EQ(SolveFlow(program, plan, rows, stream), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(to.Values(), all);
  ASSERT_EQ(cudaStreamDestroy(stream), cudaSuccess);
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
  // Half of one more times the largest weight would leave fp16.
  EXPECT_NE(misfit([](FlowModel& m) { m.correction->layers[0].slopes[0] = 8.0f; }), "");
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
