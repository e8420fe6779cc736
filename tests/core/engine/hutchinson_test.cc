// Log-densities that are estimated by probes, against a linear field whose trace is known.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numbers>
#include <string>
#include <vector>

#include "core/engine/batch_spec.h"
#include "core/engine/choose_engine.h"
#include "core/engine/device_runtime.h"
#include "core/engine/engine.h"
#include "core/engine/paired_run.h"
#include "core/io/tensor.h"
#include "core/model/layers/dense.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "core/plan/plan.h"
#include "core/plan/row_status.h"
#include "core/plan/step_control.h"
#include "tests/core/engine/engine_fixture.h"
#include "tests/testing/model_fixture.h"
#include "tests/testing/random_model.h"

namespace hyperserve {
namespace {

constexpr int64_t kDimensions = 66;
constexpr int64_t kRows = 40;

// f(z) = A z in 66 dimensions, data to noise: log p(x) = log N(z(1)) + trace A.
struct LinearFlow {
  std::shared_ptr<const Model> model;
  double trace = 0;
};
LinearFlow MakeFlow() {
  ModelSpec spec{.kind = ModelKind::kFlow, .direction = Direction::kDataToNoise};
  spec.input.shape = {kDimensions};
  spec.field = {{LinearLayer{.in = kDimensions, .out = kDimensions, .bias = false}}};
  std::vector<double> a(kDimensions * kDimensions);
  LinearFlow flow;
  for (int64_t i = 0; i < kDimensions; ++i) {
    for (int64_t j = 0; j < kDimensions; ++j) {
      a[i * kDimensions + j] = 0.05 * std::sin(1.0 + 0.37 * static_cast<double>(i * 71 + j * j)) +
                               (i == j ? 0.02 * static_cast<double>(i % 7) : 0.0);
    }
    flow.trace += static_cast<float>(a[i * kDimensions + i]);
  }
  flow.model =
      Model::FromBytes(PrintModelSpec(spec),
                       fixture::SafetensorsOf({{"field.0.weight", {kDimensions, kDimensions}, a}}))
          .value();
  return flow;
}

double LogNormal(const HostTensor& z, int64_t row) {
  double squares = 0;
  for (int64_t i = 0; i < kDimensions; ++i) {
    const double number = Number(z, row * kDimensions + i);
    squares += number * number;
  }
  return -0.5 * (squares + kDimensions * std::log(2 * std::numbers::pi));
}

class HutchinsonTest : public EngineTest {
 protected:
  BatchResult Density(const std::shared_ptr<const Model>& model, const HostTensor& rows,
                      const std::string& plan, int64_t probes, uint64_t seed,
                      uint64_t first_row = 0) {
    const StepPlan steps = StepPlanOf(ParsePlan(plan).value());
    BatchSpec spec{.model = model,
                   .tier = Tier::kDouble,
                   .entry = Entry::kState,
                   .dtype = Dtype::kF64,
                   .direction = Direction::kDataToNoise,
                   .log_density = LogDensity::kHutchinson,
                   .probes = probes};
    const Segment segment{.rows = rows.shape[0],
                          .data = View(rows),
                          .first_row = first_row,
                          .probe_seed = seed,
                          .control = ControlOf(steps, 10000)};
    const auto solved = SolveAlone(*runtime_, spec, steps, segment, nullptr);
    EXPECT_TRUE(solved.ok()) << solved.status();
    return solved.ok() ? *solved : BatchResult();
  }
};

// Each row's estimate less the exact value, in its own standard errors.
std::vector<double> Scores(const BatchResult& result, double trace) {
  std::vector<double> scores;
  for (int64_t row = 0; row < result.state.shape[0]; ++row) {
    const double exact = LogNormal(result.state, row) + trace;
    scores.push_back((Number(result.log_density, row) - exact) / result.log_density_error[row]);
  }
  return scores;
}

TEST_P(HutchinsonTest, IsUnbiasedAndItsStandardErrorIsRight) {
  const LinearFlow flow = MakeFlow();
  const HostTensor rows = NormalRows(kRows, {kDimensions}, 3);
  for (const char* plan : {"dopri5:1e-8", "rk4:3", "ab2:6"}) {
    SCOPED_TRACE(plan);
    const BatchResult result = Density(flow.model, rows, plan, 32, 7);
    ASSERT_EQ(std::ssize(result.log_density_error), kRows);
    const std::vector<double> scores = Scores(result, flow.trace);
    double sum = 0, squares = 0;
    for (const double score : scores) {
      sum += score;
      squares += score * score;
    }
    // Of 40 independent scores of variance about 1.06 (a t of 31 degrees of freedom).
    EXPECT_LT(std::abs(sum / std::sqrt(kRows)), 3.5);
    EXPECT_GT(squares / kRows, 0.5);
    EXPECT_LT(squares / kRows, 1.8);
    EXPECT_GT(result.log_density_error[0], 0.01) << "off the diagonal there is something to err in";
  }
}

TEST_P(HutchinsonTest, MoreProbesErrLess) {
  const LinearFlow flow = MakeFlow();
  const HostTensor rows = NormalRows(kRows, {kDimensions}, 3);
  const auto mean_error = [&](int64_t probes) {
    double sum = 0;
    for (const double one : Density(flow.model, rows, "rk4:2", probes, 1).log_density_error) {
      sum += one / kRows;
    }
    return sum;
  };
  EXPECT_NEAR(mean_error(16) / mean_error(64), 2, 0.3);
}

// The probes are a row's own: by its number, whatever stands beside it.
TEST_P(HutchinsonTest, RowsDoNotDependOnTheirCompany) {
  const auto model = MakeFlow().model;
  const HostTensor rows = NormalRows(kRows, {kDimensions}, 3);
  const BatchResult all = Density(model, rows, "dopri5:1e-5", 8, 5, 100);
  const BatchResult other = Density(model, rows, "dopri5:1e-5", 8, 6, 100);
  EXPECT_NE(RowBytes(all.log_density, 0), RowBytes(other.log_density, 0)) << "the seed counts";
  for (const int64_t row : {0, 17, 39}) {
    const HostTensor one = HostTensor::CopyOf(RowsOf(View(rows), row, 1));
    const BatchResult alone =
        Density(model, one, "dopri5:1e-5", 8, 5, 100 + static_cast<uint64_t>(row));
    if (on_cpu()) {
      EXPECT_EQ(RowBytes(alone.log_density, 0), RowBytes(all.log_density, row));
      EXPECT_EQ(alone.log_density_error[0], all.log_density_error[row]);
    } else {
      EXPECT_NEAR(Number(alone.log_density, 0), Number(all.log_density, row), 1e-9);
    }
  }
  const int64_t apart = on_cpu() ? 0 : 1;  // the state's own pass
  EXPECT_EQ(all.macs[0], all.nfe[0] * (1 + 8 + apart) * kDimensions * kDimensions);
}

TEST_P(HutchinsonTest, FromNoiseToDataItIsTheDensityOfTheSample) {
  const LinearFlow flow = MakeFlow();
  const StepPlan steps = StepPlanOf(ParsePlan("dopri5:1e-8").value());
  const BatchSpec spec{.model = flow.model,
                       .tier = Tier::kDouble,
                       .entry = Entry::kNoise,
                       .direction = Direction::kNoiseToData,
                       .log_density = LogDensity::kHutchinson,
                       .probes = 64};
  const Segment segment{.rows = 8, .seed = 4, .control = ControlOf(steps, 10000)};
  const BatchResult drawn = SolveAlone(*runtime_, spec, steps, segment, nullptr).value();
  const HostTensor noise = NormalRows(8, {kDimensions}, 4);
  for (int64_t row = 0; row < 8; ++row) {
    const double exact = LogNormal(noise, row) + flow.trace;  // the trace is the same on the way
    EXPECT_LT(std::abs(Number(drawn.log_density, row) - exact), 5 * drawn.log_density_error[row]);
  }
}

TEST_P(HutchinsonTest, AskingForItChangesNoSample) {
  const auto model = MakeFlow().model;
  for (const char* text : {"dopri5:1e-3", "rk4:2", "ab2:3", "dopri5:1e-6/double"}) {
    const Plan plan = ParsePlan(text).value();
    const StepPlan steps = StepPlanOf(plan);
    const BatchSpec spec{.model = model,
                         .tier = plan.tier,
                         .entry = Entry::kNoise,
                         .direction = Direction::kNoiseToData,
                         .log_density = LogDensity::kHutchinson,
                         .probes = 4};
    const Segment segment{.rows = 30, .seed = 4, .control = ControlOf(steps, 10000)};
    const BatchResult dense = SolveAlone(*runtime_, spec, steps, segment, nullptr).value();
    const BatchResult plain =
        SolveAlone(*runtime_, StateAlone(spec), steps, segment, nullptr).value();
    EXPECT_EQ(dense.state.bytes, plain.state.bytes) << text;
    EXPECT_EQ(dense.nfe, plain.nfe) << text;
    EXPECT_EQ(dense.log_density_error.size(), 30u) << text;
  }
}

TEST_P(HutchinsonTest, SpecsThatHaveNoEstimateAreRefused) {
  BatchSpec spec{.model = MakeFlow().model,
                 .entry = Entry::kState,
                 .direction = Direction::kDataToNoise,
                 .log_density = LogDensity::kHutchinson,
                 .probes = 8};
  SetPlan(StepPlanOf(ParsePlan("rk4:2").value()), spec);
  EXPECT_TRUE(CheckSpec(spec).ok()) << CheckSpec(spec);
  for (const int64_t probes : {0, 1, 65}) {
    spec.probes = probes;
    EXPECT_EQ(CheckSpec(spec).code(), absl::StatusCode::kInvalidArgument) << probes;
  }
  spec.probes = 8;
  spec.derivative = Derivative::kVjp;
  EXPECT_EQ(CheckSpec(spec).code(), absl::StatusCode::kInvalidArgument);
  spec.derivative = Derivative::kNone;
  spec.log_density = LogDensity::kDivergence;
  EXPECT_EQ(CheckSpec(spec).code(), absl::StatusCode::kInvalidArgument) << "probes of an exact one";
}

INSTANTIATE_TEST_SUITE_P(Devices, HutchinsonTest, testing::ValuesIn(DeviceNames()), DeviceTestName);

}  // namespace
}  // namespace hyperserve
