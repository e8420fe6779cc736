// Error control in the fused engine on every CUDA device: its errors against those of the readable
// engine in float32, on random nets and on the shipped flows. Skipped where there is no CUDA
// device.
#include <ATen/ATen.h>
#include <c10/core/Stream.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/engine/batch_spec.h"
#include "core/engine/device_runtime.h"
#include "core/engine/engine.h"
#include "core/engine/readable/readable_run.h"
#include "core/io/tensor.h"
#include "core/model/layers/activations.h"
#include "core/model/layers/joins.h"
#include "core/model/layers/layer.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "core/plan/plan.h"
#include "core/plan/row_status.h"
#include "core/plan/step_control.h"
#include "tests/core/engine/engine_fixture.h"
#include "tests/testing/flow_specs.h"
#include "tests/testing/model_fixture.h"
#include "tests/testing/planned_solve.h"
#include "tests/testing/random_model.h"

namespace hyperserve {
namespace {

// The error of one row under error control hangs on single decisions about steps; the mean of so
// many does not.
constexpr int64_t kRows = 65536;
constexpr double kTolerance = 1e-5;

class FusedControlTest : public EngineTest {
 protected:
  void SetUp() override {
    if (on_cpu()) GTEST_SKIP() << "the fused engine wants a CUDA device";
  }

  static BatchSpec SpecOf(const std::shared_ptr<const Model>& model, Direction direction) {
    BatchSpec spec{.model = model, .entry = Entry::kNoise, .direction = direction};
    SetPlan(StepPlan(Dopri5(kTolerance)), spec);
    return spec;
  }

  // Of the readable engine, whatever the runtime would choose.
  BatchResult Readable(const BatchSpec& spec, double tolerance) const {
    const auto stream =
        std::make_shared<const c10::Stream>(c10::Stream::DEFAULT, at::Device(GetParam()));
    const auto run = MakeReadableRun(spec, stream, kRows);
    EXPECT_TRUE(run->Admit(SegmentOf(tolerance)).ok());
    while (!run->Advance(1000, nullptr).value()) continue;
    return std::move(run->TakeFinished().value().at(0).rows);
  }

  static Segment SegmentOf(double tolerance) {
    return {
        .rows = kRows, .seed = 14, .control = ErrorControl{.rtol = tolerance, .atol = tolerance}};
  }

  // The mean over the rows of the distance to the oracle.
  static double MeanError(const BatchResult& result, const BatchResult& oracle) {
    const int64_t size = oracle.state.elements() / kRows;
    double sum = 0.0;
    for (int64_t row = 0; row < kRows; ++row) {
      double squares = 0.0;
      for (int64_t i = row * size; i < (row + 1) * size; ++i) {
        squares += std::pow(Number(result.state, i) - Number(oracle.state, i), 2);
      }
      sum += std::sqrt(squares);
    }
    return sum / kRows;
  }

  static double Mean(const std::vector<int32_t>& counts) {
    double sum = 0.0;
    for (const int32_t count : counts) sum += count;
    return sum / static_cast<double>(counts.size());
  }

  void ExpectTheErrorOfFloat32(const std::shared_ptr<const Model>& model, Direction direction,
                               const std::string& name) {
    BatchSpec spec = SpecOf(model, direction);
    DeviceRuntime::StartedRun started = runtime_->StartRun(spec, kRows).value();
    ASSERT_EQ(started.choice.engine, "fused") << name << ": " << started.choice.why;
    ASSERT_TRUE(started.run->Admit(SegmentOf(kTolerance)).ok());
    ASSERT_TRUE(started.run->Advance(1, nullptr).value());
    const BatchResult fused = std::move(started.run->TakeFinished().value().at(0).rows);
    const BatchResult fp32 = Readable(spec, kTolerance);
    spec.tier = Tier::kDouble;
    const BatchResult oracle = Readable(spec, 1e-11);
    EXPECT_EQ(fused.status, fp32.status) << name;
    EXPECT_EQ(fused.solved_again, 0) << name;
    const double error = MeanError(fused, oracle), error_of_fp32 = MeanError(fp32, oracle);
    EXPECT_LT(error, 1.2 * error_of_fp32) << name;
    EXPECT_NEAR(Mean(fused.nfe) / Mean(fp32.nfe), 1.0, 0.02) << name;
    EXPECT_EQ(fused.macs[7], fused.nfe[7] * model->field_macs());
    std::printf("  %s: error %.3e, of fp32 %.3e, %.3f times; %.2f and %.2f evaluations\n",
                name.c_str(), error, error_of_fp32, error / error_of_fp32, Mean(fused.nfe),
                Mean(fp32.nfe));
  }
};

constexpr Direction kDirections[] = {Direction::kDataToNoise, Direction::kNoiseToData};

TEST_P(FusedControlTest, TheErrorIsThatOfFloat32OnRandomNets) {
  const Layer activations[] = {{SoftplusLayer{}}, {TanhLayer{}}, {SiluLayer{}}, {ReluLayer{}}};
  for (const Layer& activation : activations) {
    for (const int64_t dimensions : {1, 2, 8}) {
      const ModelSpec spec = fixture::FusedFlowSpec(activation, dimensions);
      const auto model = fixture::RandomModel(spec, 5);
      for (const Direction direction : kDirections) {
        ExpectTheErrorOfFloat32(
            model, direction,
            absl::StrCat(std::string(LayerName(activation)), " ", dimensions,
                         direction == Direction::kDataToNoise ? " forward" : " against"));
      }
    }
    ModelSpec deep = fixture::FusedFlowSpec(activation);
    deep.field = fixture::Mlp({2, 128, 128, 128, 2}, activation);
    ExpectTheErrorOfFloat32(fixture::RandomModel(deep, 6), Direction::kDataToNoise,
                            absl::StrCat(std::string(LayerName(activation)), " deep"));
  }
}

TEST_P(FusedControlTest, TheErrorIsThatOfFloat32OnTheShippedFlows) {
  for (const char* name : {"pinwheel", "rings"}) {
    const std::string folder = absl::StrCat(fixture::ShippedModels(), "/", name);
    if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no models in " << folder;
    const std::shared_ptr<const Model> model = Model::Load(folder).value();
    for (const Direction direction : kDirections) {
      ExpectTheErrorOfFloat32(
          model, direction,
          absl::StrCat(name, direction == Direction::kDataToNoise ? " to noise" : " to data"));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, FusedControlTest, testing::ValuesIn(DeviceNames()),
                         DeviceTestName);

}  // namespace
}  // namespace hyperserve
