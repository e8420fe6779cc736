#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "core/engine/batch_spec.h"
#include "core/engine/engine.h"
#include "core/io/tensor.h"
#include "core/model/layers/dense.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "tests/core/engine/engine_fixture.h"
#include "tests/testing/model_fixture.h"
#include "tests/testing/planned_solve.h"
#include "tests/testing/random_model.h"

namespace hyperserve {
namespace {

double LogNormal(double x, double y) {
  return -0.5 * (x * x + y * y) - std::log(2 * std::numbers::pi);
}

class LogDensityTest : public EngineTest {
 protected:
  // log|det| of the whole map at each row, by central differences of the engine's own answers.
  std::vector<double> DifferencedLogDet(PlannedSolve spec, const HostTensor& rows) {
    spec.log_density = LogDensity::kNone;
    constexpr double kStep = 1e-5;
    const size_t count = static_cast<size_t>(rows.shape[0]);
    std::vector<std::array<double, 4>> jacobian(count);
    for (size_t i = 0; i < 2; ++i) {
      HostTensor above = rows, below = rows;
      for (size_t row = 0; row < count; ++row) {
        above.as<double>()[2 * row + i] += kStep;
        below.as<double>()[2 * row + i] -= kStep;
      }
      const HostTensor high = Run(spec, above).state, low = Run(spec, below).state;
      for (size_t row = 0; row < count; ++row) {
        for (size_t j = 0; j < 2; ++j) {
          jacobian[row][2 * i + j] =
              (high.as<double>()[2 * row + j] - low.as<double>()[2 * row + j]) / (2 * kStep);
        }
      }
    }
    std::vector<double> log_det;
    for (const auto& j : jacobian) log_det.push_back(std::log(std::abs(j[0] * j[3] - j[1] * j[2])));
    return log_det;
  }

  void ExpectStepMapDensity(const PlannedSolve& spec, const HostTensor& rows) {
    const std::vector<double> log_det = DifferencedLogDet(spec, rows);
    const BatchResult result = Run(spec, rows);
    for (int64_t row = 0; row < rows.shape[0]; ++row) {
      const double change = log_det[static_cast<size_t>(row)];
      const double expected =
          spec.direction == Direction::kNoiseToData
              ? LogNormal(Number(rows, 2 * row), Number(rows, 2 * row + 1)) - change
              : LogNormal(Number(result.state, 2 * row), Number(result.state, 2 * row + 1)) +
                    change;
      EXPECT_NEAR(Number(result.log_density, row), expected, 1e-6);
    }
  }
};

TEST_P(LogDensityTest, AskingForItChangesNoSample) {
  PlannedSolve spec = {.model = fixture::RandomModel(fixture::FlowSpec(), 1),
                       .plan = Dopri5(1e-3),
                       .entry = Entry::kState,
                       .direction = Direction::kNoiseToData};
  HostTensor rows = HostTensor::Zeros(Dtype::kF32, {64, 2});
  const HostTensor normal = NormalRows(64, {2}, 3);
  for (int64_t i = 0; i < 128; ++i) rows.as<float>()[i] = static_cast<float>(Number(normal, i));
  const BatchResult plain = Run(spec, rows);
  spec.log_density = LogDensity::kDivergence;
  const BatchResult with_density = Run(spec, rows);
  EXPECT_EQ(with_density.nfe, plain.nfe);
  EXPECT_EQ(with_density.state.bytes, plain.state.bytes);
}

TEST_P(LogDensityTest, OfStepMapsIsTheDeterminantOfTheWholeMap) {
  const auto model = fixture::RandomModel(fixture::FlowSpec(), 1);
  const HostTensor rows = NormalRows(6, {2}, 2);
  PlannedSolve spec = {.model = model,
                       .plan = Fixed(Method::kRk4, 3),
                       .tier = Tier::kDouble,
                       .entry = Entry::kState,
                       .log_density = LogDensity::kStepMap};
  for (const Direction direction : {Direction::kNoiseToData, Direction::kDataToNoise}) {
    spec.direction = direction;
    ExpectStepMapDensity(spec, rows);
  }
  spec.direction = Direction::kNoiseToData;
  spec.plan = Hypersolved(Method::kHeun, 3);
  spec.correction = fixture::RandomHypersolver(fixture::FlowCorrectionSpec(), *model, 3);
  ExpectStepMapDensity(spec, rows);

  // A correction that also sees the first state depends on it through every step.
  HypersolverSpec with_first = fixture::FlowCorrectionSpec();
  with_first.inputs.push_back(CorrectionInput::kState0);
  std::get<LinearLayer>(with_first.net[0].kind).in += 2;
  spec.correction = fixture::RandomHypersolver(with_first, *model, 3);
  ExpectStepMapDensity(spec, rows);
}

// z' = A z: the divergence is the trace of A, everywhere.
TEST_P(LogDensityTest, OfALinearFieldIsKnown) {
  const fixture::LinearModel files = fixture::TinyFlow();
  const auto model = Model::FromBytes(files.model_json, files.weights).value();
  const double trace = files.a[0] + files.a[3];
  const HostTensor rows = NormalRows(3, {2}, 4);
  PlannedSolve spec = {.model = model,
                       .plan = Dopri5(1e-10),
                       .tier = Tier::kDouble,
                       .entry = Entry::kState,
                       .log_density = LogDensity::kDivergence};
  const BatchResult sampled = Run(spec, rows);  // forward: noise to data
  spec.direction = Direction::kDataToNoise;
  const BatchResult scored = Run(spec, sampled.state);
  for (int64_t row = 0; row < 3; ++row) {
    const double expected = LogNormal(Number(rows, 2 * row), Number(rows, 2 * row + 1)) - trace;
    EXPECT_NEAR(Number(sampled.log_density, row), expected, 1e-8);
    EXPECT_NEAR(Number(scored.log_density, row), expected, 1e-7);
  }
}

TEST_P(LogDensityTest, DivergenceAndStepMapMeetAsStepsShrink) {
  const auto model = fixture::RandomModel(fixture::FlowSpec(), 5);
  const HostTensor rows = NormalRows(4, {2}, 6);
  PlannedSolve spec = {.model = model,
                       .plan = Dopri5(1e-9),
                       .tier = Tier::kDouble,
                       .entry = Entry::kState,
                       .direction = Direction::kNoiseToData,
                       .log_density = LogDensity::kDivergence};
  const BatchResult flow = Run(spec, rows);
  spec.plan = Fixed(Method::kRk4, 64);
  const BatchResult fixed = Run(spec, rows);
  spec.log_density = LogDensity::kStepMap;
  const BatchResult map = Run(spec, rows);
  for (int64_t row = 0; row < 4; ++row) {
    EXPECT_NEAR(Number(fixed.log_density, row), Number(flow.log_density, row), 1e-6);
    EXPECT_NEAR(Number(map.log_density, row), Number(flow.log_density, row), 1e-6);
  }
}

TEST_P(LogDensityTest, RefusesWhatIsTooLargeOrHasNone) {
  ModelSpec large = fixture::FlowSpec();
  large.input.shape = {65};
  large.field = {{LinearLayer{.in = 65, .out = 65}}};
  PlannedSolve spec = {.model = fixture::RandomModel(large, 1),
                       .plan = Fixed(Method::kEuler, 1),
                       .entry = Entry::kState,
                       .log_density = LogDensity::kDivergence};
  EXPECT_EQ(runtime_->StartRun(SpecOf(spec), 1).status().code(), absl::StatusCode::kUnimplemented);
  spec.model = fixture::RandomModel(fixture::ImageSpec(), 1);
  EXPECT_EQ(runtime_->StartRun(SpecOf(spec), 1).status().code(),
            absl::StatusCode::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Devices, LogDensityTest, testing::ValuesIn(DeviceNames()), DeviceTestName);

}  // namespace
}  // namespace hyperserve
