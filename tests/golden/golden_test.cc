// The golden cases, to the agreement that README.md of this folder states, on every device, in
// every tier and by every engine.
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "core/engine/batch_spec.h"
#include "core/engine/device_runtime.h"
#include "core/engine/devices.h"
#include "core/engine/engine.h"
#include "core/io/philox.h"
#include "core/io/tensor.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "core/plan/row_status.h"
#include "core/plan/step_control.h"
#include "tests/golden/golden_case.h"
#include "tests/testing/planned_solve.h"

namespace hyperserve {
namespace {

struct Agreement {
  Tier tier;
  double fixed;        // relative to the largest answer: fixed-step answers
  double exact;        // the same: solutions by dopri5
  double log_density;  // absolute
  double tolerance;    // rtol = atol of dopri5
};
// In float64 every sum of a step is within a few rounding units of the answer. In float32 the
// rounding of 1e-7 grows through 300 additions a layer.
constexpr Agreement kAgreements[] = {
    {Tier::kDouble, 1e-12, 1e-11, 1e-9, 1e-13},
    {Tier::kExact, 2e-5, 2e-5, 1e-4, 1e-7},
};
// Fixed plans only. Its gate allows f an error of 1e-3 (Frobenius norm over a batch); the largest
// of 256 rows and of some steps may be three times that (pinwheel on an H200: 2.1e-3).
constexpr Agreement kFast = {Tier::kFast, 3e-3, 0, 0, 0};

// The first rows of a tensor, borrowed or owned.
template <class Tensor>
Tensor FirstRows(Tensor tensor, int64_t rows) {
  const size_t bytes = tensor.bytes.size() / static_cast<size_t>(tensor.shape[0]);
  tensor.shape[0] = rows;
  tensor.bytes = {tensor.bytes.begin(), tensor.bytes.begin() + static_cast<long>(bytes * rows)};
  return tensor;
}

struct Setting {
  std::string device;
  Agreement agreement;
  std::string engine;  // that fixed plans without densities must run on
};

std::vector<Setting> Settings() {
  std::vector<Setting> settings;
  for (const DeviceInfo& device : ListDevices()) {
    for (const Agreement& agreement : kAgreements) {
      settings.push_back({device.name, agreement, "readable"});
      if (device.name != "cpu") settings.push_back({device.name, agreement, "graph"});
    }
    if (device.name != "cpu") settings.push_back({device.name, kFast, "fused"});
  }
  return settings;
}

class GoldenTest : public testing::TestWithParam<Setting> {
 protected:
  // False: the case is missing, and the test is skipped by name.
  bool Load(const std::string& name) {
    absl::StatusOr<GoldenCase> loaded = LoadGoldenCase(name);
    if (absl::IsNotFound(loaded.status())) return false;
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    if (!loaded.ok()) return false;
    golden_.emplace(*std::move(loaded));
    absl::StatusOr<std::unique_ptr<DeviceRuntime>> runtime = MakeDeviceRuntime(GetParam().device);
    EXPECT_TRUE(runtime.ok()) << runtime.status();
    runtime_ = *std::move(runtime);
    return true;
  }

  TensorView Answer(const std::string& name) { return golden_->answers.Find(name).value(); }

  PlannedSolve Spec() { return {.model = golden_->model, .tier = GetParam().agreement.tier}; }

  BatchResult Run(PlannedSolve spec, const TensorView& rows) {
    const FixedPlan* fixed = std::get_if<FixedPlan>(&spec.plan);
    if (fixed != nullptr && fixed->hypersolved) spec.correction = golden_->correction;
    if (fixed != nullptr && spec.log_density == LogDensity::kNone && spec.save_at.empty()) {
      CheckEngine(SpecOf(spec, rows.dtype), ControlOf(spec), rows.shape[0]);
    }
    absl::StatusOr<BatchResult> result = Solve(*runtime_, spec, rows);
    EXPECT_TRUE(result.ok()) << result.status();
    for (const RowStatus status : result->status) EXPECT_EQ(status, RowStatus::kConverged);
    return *std::move(result);
  }

  void CheckEngine(const BatchSpec& spec, const StepControl& control, int64_t rows) {
    if (GetParam().engine == "graph") {
      const absl::Status warm = runtime_->WarmUp(spec, control, rows, [] { return false; });
      ASSERT_TRUE(warm.ok()) << warm;
    }
    const auto started = runtime_->StartRun(spec, rows);
    ASSERT_TRUE(started.ok()) << started.status();
    EXPECT_EQ(started->choice.engine, GetParam().engine) << started->choice.why;
  }

  bool fast() const { return GetParam().agreement.tier == Tier::kFast; }

  AdaptivePlan Dopri5() const {
    const double tolerance = GetParam().agreement.tolerance;
    return {.method = {.method = Method::kDopri5}, .rtol = tolerance, .atol = tolerance};
  }

  std::optional<GoldenCase> golden_;
  std::unique_ptr<DeviceRuntime> runtime_;
};

TEST_P(GoldenTest, VisionLogits) {
  if (!Load("vision_fashion")) GTEST_SKIP() << "no vision_fashion in " << GoldenFolder();
  PlannedSolve spec = Spec();
  spec.want_outputs = true;
  const std::vector<GoldenAnswer> answers = FixedAnswers(*golden_, "logits_");
  EXPECT_EQ(answers.size(), 11u);
  for (const GoldenAnswer& answer : answers) {
    spec.plan = answer.plan;
    const BatchResult result = Run(spec, Answer("x_u8"));
    EXPECT_LE(Compare(result.outputs, Answer(answer.tensor)).relative, GetParam().agreement.fixed)
        << answer.tensor;
  }
}

TEST_P(GoldenTest, VisionExact) {
  if (fast()) GTEST_SKIP() << "its tolerances are above those of the exact answers";
  if (!Load("vision_fashion")) GTEST_SKIP() << "no vision_fashion in " << GoldenFolder();
  PlannedSolve spec = Spec();
  spec.want_outputs = true;
  spec.plan = Dopri5();
  spec.save_at = {0.0};
  const BatchResult result = Run(spec, Answer("x_u8"));
  EXPECT_LE(Compare(result.outputs, Answer("logits_exact")).relative, GetParam().agreement.exact);
  EXPECT_LE(Compare(FirstRows(result.state, 2), Answer("z_exact")).relative,
            GetParam().agreement.exact);
  HostTensor start = FirstRows(result.saved, 2);
  start.shape = {2, 32, 28, 28};  // one depth, s = 0
  EXPECT_LE(Compare(start, Answer("z0")).relative, GetParam().agreement.fixed);
}

// One image, alone and among 63 images of noise, which are harder to solve.
TEST_P(GoldenTest, VisionRowsAreAlone) {
  if (GetParam().device != "cpu") GTEST_SKIP() << "other sizes are other buckets on CUDA";
  if (!Load("vision_fashion")) GTEST_SKIP() << "no vision_fashion in " << GoldenFolder();
  HostTensor batch = HostTensor::Zeros(Dtype::kU8, {64, 1, 28, 28});
  for (size_t i = 0; i < batch.bytes.size(); ++i) {
    batch.bytes[i] =
        static_cast<std::byte>(Philox4x32({static_cast<uint32_t>(i), 0, 0, 0}, {1, 2})[0]);
  }
  const TensorView image = FirstRows(Answer("x_u8"), 1);
  std::copy(image.bytes.begin(), image.bytes.end(), batch.bytes.begin());
  PlannedSolve spec = Spec();
  spec.want_outputs = true;
  const TensorView among{batch.dtype, batch.shape, batch.bytes};
  for (const char* text : {"hyper_euler:2", "dopri5:1e-2"}) {
    const Plan plan = ParsePlan(text).value();
    if (plan.fixed() != nullptr) spec.plan = *plan.fixed();
    if (plan.adaptive() != nullptr) spec.plan = *plan.adaptive();
    const BatchResult alone = Run(spec, image), beside = Run(spec, among);
    EXPECT_EQ(FirstRows(beside.outputs, 1).bytes, alone.outputs.bytes) << text;
    EXPECT_EQ(FirstRows(beside.state, 1).bytes, alone.state.bytes) << text;
    EXPECT_EQ(beside.nfe[0], alone.nfe[0]) << text;
  }
}

class GoldenFlowTest : public GoldenTest {
 protected:
  void CheckSamples(const std::string& name) {
    if (!Load(name)) GTEST_SKIP() << "no " << name << " in " << GoldenFolder();
    PlannedSolve spec = Spec();
    spec.entry = Entry::kState;
    spec.direction = Direction::kNoiseToData;
    const std::vector<GoldenAnswer> answers = FixedAnswers(*golden_, "x_");
    EXPECT_EQ(answers.size(), 6u);
    for (const GoldenAnswer& answer : answers) {
      spec.plan = answer.plan;
      const BatchResult result = Run(spec, Answer("z"));
      EXPECT_LE(Compare(result.state, Answer(answer.tensor)).relative, GetParam().agreement.fixed)
          << answer.tensor;
    }
    if (fast()) return;  // flows have error control in tier exact
    spec.plan = Dopri5();
    const BatchResult exact = Run(spec, Answer("z"));
    EXPECT_LE(Compare(exact.state, Answer("x_exact")).relative, GetParam().agreement.exact);
  }

  void CheckLogDensities(const std::string& name) {
    if (fast()) GTEST_SKIP() << "fused_engine_test has its densities";
    if (!Load(name)) GTEST_SKIP() << "no " << name << " in " << GoldenFolder();
    PlannedSolve spec = Spec();
    spec.entry = Entry::kState;
    spec.direction = Direction::kNoiseToData;
    spec.log_density = LogDensity::kStepMap;
    const std::vector<GoldenAnswer> answers = FixedAnswers(*golden_, "log_density_");
    EXPECT_EQ(answers.size(), 6u);
    for (const GoldenAnswer& answer : answers) {
      spec.plan = answer.plan;
      const BatchResult result = Run(spec, Answer("z"));
      EXPECT_LE(Compare(result.log_density, Answer(answer.tensor)).absolute,
                GetParam().agreement.log_density)
          << answer.tensor;
    }
    spec.direction = Direction::kDataToNoise;
    spec.log_density = LogDensity::kDivergence;
    spec.plan = Dopri5();
    const BatchResult exact = Run(spec, Answer("density_x"));
    EXPECT_LE(Compare(exact.log_density, Answer("density_log_prob")).absolute,
              GetParam().agreement.log_density);
  }
};

// Eight samples, each alone and among 63 that are drawn from a distribution three times as wide.
TEST_P(GoldenFlowTest, PinwheelRowsAreAlone) {
  if (GetParam().device != "cpu") GTEST_SKIP() << "other sizes are other buckets on CUDA";
  if (!Load("cnf_pinwheel")) GTEST_SKIP() << "no cnf_pinwheel in " << GoldenFolder();
  HostTensor batch = HostTensor::Zeros(Dtype::kF64, {64, 2});
  PlannedSolve spec = Spec();
  spec.entry = Entry::kState;
  spec.direction = Direction::kNoiseToData;
  for (size_t row = 0; row < 8; ++row) {
    PhiloxNormals(3, 0, 64, 2, batch.as<double>());
    for (double& value : batch.as<double>()) value *= 3;
    TensorView one = Answer("z");
    one.shape[0] = 1;
    one.bytes = one.bytes.subspan(16 * row, 16);
    std::copy(one.bytes.begin(), one.bytes.end(), batch.bytes.begin());
    for (const char* text : {"hyper_heun:1", "rk4:4", "dopri5:1e-6"}) {
      const Plan plan = ParsePlan(text).value();
      if (plan.fixed() != nullptr) spec.plan = *plan.fixed();
      if (plan.adaptive() != nullptr) spec.plan = *plan.adaptive();
      const BatchResult alone = Run(spec, one);
      const BatchResult beside = Run(spec, {batch.dtype, batch.shape, batch.bytes});
      EXPECT_EQ(FirstRows(beside.state, 1).bytes, alone.state.bytes) << text;
      EXPECT_EQ(beside.nfe[0], alone.nfe[0]) << text;
    }
  }
}

TEST_P(GoldenFlowTest, PinwheelSamples) { CheckSamples("cnf_pinwheel"); }
TEST_P(GoldenFlowTest, PinwheelLogDensities) { CheckLogDensities("cnf_pinwheel"); }
TEST_P(GoldenFlowTest, RingsSamples) { CheckSamples("cnf_rings"); }
TEST_P(GoldenFlowTest, RingsLogDensities) { CheckLogDensities("cnf_rings"); }

std::string SettingName(const testing::TestParamInfo<Setting>& info) {
  std::string device = info.param.device;
  std::replace(device.begin(), device.end(), ':', '_');
  return absl::StrCat(device, "_", std::string(TierName(info.param.agreement.tier)), "_",
                      info.param.engine);
}

INSTANTIATE_TEST_SUITE_P(Devices, GoldenTest, testing::ValuesIn(Settings()), SettingName);
INSTANTIATE_TEST_SUITE_P(Devices, GoldenFlowTest, testing::ValuesIn(Settings()), SettingName);

}  // namespace
}  // namespace hyperserve
