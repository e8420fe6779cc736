#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "core/engine/batch_spec.h"
#include "core/engine/device_runtime.h"
#include "core/engine/engine.h"
#include "core/io/philox.h"
#include "core/io/tensor.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "core/plan/row_status.h"
#include "tests/core/engine/engine_fixture.h"
#include "tests/testing/model_fixture.h"
#include "tests/testing/planned_solve.h"
#include "tests/testing/random_model.h"

namespace hyperserve {
namespace {

using testing::Each;
using testing::HasSubstr;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

class ReadableEngineTest : public EngineTest {
 protected:
  PlannedSolve FlowSpec(Tier tier = Tier::kDouble) const {
    return {.model = flow_, .plan = Dopri5(1e-9), .tier = tier, .entry = Entry::kState};
  }
  PlannedSolve LinearSpec() const {
    return {.model = linear_, .plan = Dopri5(1e-10), .tier = Tier::kDouble, .entry = Entry::kState};
  }

  std::shared_ptr<const Model> flow_ = fixture::RandomModel(fixture::FlowSpec(), 1);
  std::shared_ptr<const Hypersolver> correction_ =
      fixture::RandomHypersolver(fixture::FlowCorrectionSpec(), *flow_, 2);
  fixture::LinearModel linear_files_ = fixture::TinyFlow();
  std::shared_ptr<const Model> linear_ =
      Model::FromBytes(linear_files_.model_json, linear_files_.weights).value();
};

TEST_P(ReadableEngineTest, SolvesALinearFieldBothWays) {
  const HostTensor rows = NormalRows(5, {2}, 3);
  for (const Direction direction :
       {Direction::kForward, Direction::kNoiseToData, Direction::kDataToNoise}) {
    PlannedSolve spec = LinearSpec();
    spec.direction = direction;
    const BatchResult result = Run(spec, rows);
    for (int64_t row = 0; row < 5; ++row) {
      const std::vector<double> exact = fixture::ExactSolution(
          linear_files_, direction, {Number(rows, 2 * row), Number(rows, 2 * row + 1)}, 1.0);
      for (int64_t i = 0; i < 2; ++i) {
        EXPECT_NEAR(Number(result.state, 2 * row + i), exact[static_cast<size_t>(i)], 1e-8);
      }
    }
    EXPECT_THAT(result.status, Each(RowStatus::kConverged));
  }
}

// The field depends on depth: only the reflected clock leads back.
TEST_P(ReadableEngineTest, SolvingAgainstTheFieldLeadsBack) {
  const HostTensor rows = NormalRows(4, {2}, 4);
  PlannedSolve spec = FlowSpec();
  spec.direction = Direction::kDataToNoise;
  const HostTensor there = Run(spec, rows).state;
  spec.direction = Direction::kNoiseToData;
  const HostTensor back = Run(spec, there).state;
  for (int64_t i = 0; i < 8; ++i) EXPECT_NEAR(Number(back, i), Number(rows, i), 1e-7);
}

TEST_P(ReadableEngineTest, ASpanIsPartOfTheSolversOwnClock) {
  const HostTensor rows = NormalRows(3, {2}, 5);
  PlannedSolve spec = FlowSpec();
  spec.direction = Direction::kNoiseToData;
  const HostTensor whole = Run(spec, rows).state;
  spec.span = {0.0, 0.375};
  const HostTensor middle = Run(spec, rows).state;
  spec.span = {0.375, 1.0};
  const HostTensor end = Run(spec, middle).state;
  for (int64_t i = 0; i < 6; ++i) EXPECT_NEAR(Number(end, i), Number(whole, i), 1e-7);
}

TEST_P(ReadableEngineTest, SavesStatesAtDepths) {
  const HostTensor rows = NormalRows(2, {2}, 6);
  PlannedSolve spec = LinearSpec();
  spec.save_at = {0.0, 0.3, 0.75, 1.0};
  const BatchResult result = Run(spec, rows);
  EXPECT_EQ(result.saved.shape, (Shape{2, 4, 2}));
  for (int64_t row = 0; row < 2; ++row) {
    for (int64_t k = 0; k < 4; ++k) {
      const std::vector<double> exact = fixture::ExactSolution(
          linear_files_, Direction::kForward, {Number(rows, 2 * row), Number(rows, 2 * row + 1)},
          spec.save_at[static_cast<size_t>(k)]);
      EXPECT_NEAR(Number(result.saved, (row * 4 + k) * 2), exact[0], 1e-7);
      EXPECT_NEAR(Number(result.saved, (row * 4 + k) * 2 + 1), exact[1], 1e-7);
    }
  }
}

TEST_P(ReadableEngineTest, RowsFailAlone) {
  HostTensor rows = NormalRows(3, {2}, 7);
  rows.as<double>()[2] = kNaN;  // row 1
  PlannedSolve spec = LinearSpec();
  spec.log_density = LogDensity::kDivergence;
  spec.save_at = {0.5};
  for (const StepPlan& plan : {StepPlan(Fixed(Method::kRk4, 4)), StepPlan(Dopri5(1e-6))}) {
    spec.plan = plan;
    const BatchResult result = Run(spec, rows);
    EXPECT_EQ(result.status, (std::vector<RowStatus>{RowStatus::kConverged, RowStatus::kNonFinite,
                                                     RowStatus::kConverged}));
    EXPECT_TRUE(std::isnan(Number(result.log_density, 1)));
    EXPECT_TRUE(std::isnan(Number(result.saved, 2)));
    for (const int64_t row : {0, 2}) {
      EXPECT_TRUE(std::isfinite(Number(result.log_density, row)));
      EXPECT_TRUE(std::isfinite(Number(result.saved, 2 * row)));
    }
  }
  spec.plan = Dopri5(1e-10);
  spec.max_steps = 2;
  const BatchResult limited = Run(spec, NormalRows(2, {2}, 8));
  EXPECT_THAT(limited.status, Each(RowStatus::kStepLimit));
  EXPECT_TRUE(std::isnan(Number(limited.log_density, 0)));
  EXPECT_TRUE(std::isfinite(Number(limited.state, 0)));  // how far it came
}

TEST_P(ReadableEngineTest, CountsWhatARowCost) {
  const int64_t f = flow_->field_macs(), g = correction_->macs();
  EXPECT_EQ(f, 3 * 30 + 30 * 31 + 31 * 2);
  const HostTensor rows = NormalRows(5, {2}, 9);
  PlannedSolve spec = FlowSpec();
  spec.plan = Fixed(Method::kRk4, 3);
  BatchResult result = Run(spec, rows);
  EXPECT_THAT(result.nfe, Each(12));
  EXPECT_THAT(result.correction_evaluations, Each(0));
  EXPECT_THAT(result.macs, Each(12 * f));
  EXPECT_EQ(result.bucket, on_cpu() ? 32 : 8);

  spec.plan = Hypersolved(Method::kHeun, 3);
  spec.correction = correction_;
  spec.direction = Direction::kNoiseToData;
  result = Run(spec, rows);
  EXPECT_THAT(result.nfe, Each(6));
  EXPECT_THAT(result.correction_evaluations, Each(3));
  EXPECT_THAT(result.macs, Each(6 * f + 3 * g));

  // In double, with two tangents: three passes; and the state's own, in single precision.
  spec.log_density = LogDensity::kStepMap;
  spec.tier = Tier::kExact;
  result = Run(spec, rows);
  EXPECT_THAT(result.macs, Each(4 * (6 * f + 3 * g)));
  EXPECT_THAT(result.nfe, Each(6));
  EXPECT_THAT(result.correction_evaluations, Each(3));

  const auto images = fixture::RandomModel(fixture::ImageSpec(), 1);
  spec = {.model = images, .plan = Fixed(Method::kEuler, 2), .want_outputs = true};
  HostTensor pixels = HostTensor::Zeros(Dtype::kU8, {2, 1, 12, 12});
  EXPECT_THAT(Run(spec, pixels).macs,
              Each(images->stem_macs() + 2 * images->field_macs() + images->head_macs()));
}

TEST_P(ReadableEngineTest, PiecesChangeNothingAndCancellationClearsTheRun) {
  const HostTensor rows = NormalRows(7, {2}, 10);
  PlannedSolve spec = FlowSpec();
  spec.save_at = {0.4};
  const BatchResult whole = Run(spec, rows);
  const Segment segment{.rows = 7, .data = View(rows), .control = ControlOf(spec)};
  const auto run = std::move(runtime_->StartRun(SpecOf(spec), 7).value().run);
  const Ticket ticket = run->Admit(segment).value();
  EXPECT_TRUE(run->TakeFinished().value().empty());
  int pieces = 1;
  while (!run->Advance(1, nullptr).value()) ++pieces;
  EXPECT_GT(pieces, 18);  // three steps of dopri5 at least
  const std::vector<SolvedSegment> finished = run->TakeFinished().value();
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_EQ(finished[0].ticket, ticket);
  const BatchResult& in_pieces = finished[0].rows;
  EXPECT_EQ(in_pieces.state.bytes, whole.state.bytes);
  EXPECT_EQ(in_pieces.saved.bytes, whole.saved.bytes);
  EXPECT_EQ(in_pieces.nfe, whole.nfe);

  ASSERT_TRUE(run->Admit(segment).ok());
  int asked = 0;
  const auto cancelled = [&] { return ++asked > 2; };
  EXPECT_EQ(run->Advance(100, cancelled).status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(asked, 3);
  EXPECT_TRUE(run->Advance(1, nullptr).value()) << "no rows are left";
  EXPECT_TRUE(run->TakeFinished().value().empty());
  ASSERT_TRUE(run->Admit(segment).ok());
  while (!run->Advance(100, nullptr).value()) continue;
  EXPECT_EQ(run->TakeFinished().value().at(0).rows.state.bytes, whole.state.bytes);
}

TEST_P(ReadableEngineTest, PreprocessesInDouble) {
  ModelSpec spec = fixture::ImageSpec();
  spec.stem.clear();
  spec.input.shape = {8, 4, 4};
  spec.input.mean.assign(8, 0.25);
  spec.input.deviation.assign(8, 0.3);
  const auto model = fixture::RandomModel(spec, 1);
  HostTensor pixels = HostTensor::Zeros(Dtype::kU8, {2, 8, 4, 4});
  for (size_t i = 0; i < pixels.bytes.size(); ++i) pixels.bytes[i] = static_cast<std::byte>(i);
  for (const Tier tier : {Tier::kExact, Tier::kDouble}) {
    const BatchResult result = Run(
        {.model = model, .plan = Fixed(Method::kEuler, 1), .tier = tier, .save_at = {0.0}}, pixels);
    for (int64_t i = 0; i < 256; ++i) {
      const double expected = (static_cast<double>(i) / 255.0 - 0.25) / 0.3;
      const double rounded = tier == Tier::kExact ? static_cast<float>(expected) : expected;
      // CUDA may divide by multiplying: the last bit of a double.
      EXPECT_NEAR(Number(result.saved, i), rounded, on_cpu() ? 0.0 : 1e-7);
    }
  }
}

TEST_P(ReadableEngineTest, NoiseIsAFunctionOfSeedAndRow) {
  PlannedSolve spec = FlowSpec(Tier::kExact);
  spec.entry = Entry::kNoise;
  spec.plan = Fixed(Method::kHeun, 1);
  spec.save_at = {0.0};
  const auto run = [&](std::vector<Segment> segments) {
    const auto started = std::move(runtime_->StartRun(SpecOf(spec), 40).value().run);
    for (Segment& segment : segments) {
      segment.control = ControlOf(spec);
      EXPECT_TRUE(started->Admit(segment).ok());
    }
    EXPECT_TRUE(started->Advance(100, nullptr).value());
    return started->TakeFinished().value();
  };
  const BatchResult whole = run({{.rows = 40, .seed = 11, .first_row = 5}}).at(0).rows;
  const std::vector<SolvedSegment> split =
      run({{.rows = 15, .seed = 11, .first_row = 5}, {.rows = 25, .seed = 11, .first_row = 20}});
  for (int64_t row = 0; row < 40; ++row) {
    EXPECT_EQ(RowBytes(whole.state, row), row < 15 ? RowBytes(split.at(0).rows.state, row)
                                                   : RowBytes(split.at(1).rows.state, row - 15));
  }
  std::vector<double> normals(80);
  PhiloxNormals(11, 5, 40, 2, normals);
  for (int64_t i = 0; i < 80; ++i) {
    EXPECT_NEAR(Number(whole.saved, i), normals[static_cast<size_t>(i)], 1e-6);
  }
}

TEST_P(ReadableEngineTest, RefusesBeforeAnyWork) {
  const HostTensor rows = NormalRows(2, {2}, 12);
  const auto refused = [&](const PlannedSolve& spec, absl::StatusCode code, const char* message,
                           const HostTensor& data) {
    const absl::Status status = TryRun(spec, data).status();
    EXPECT_EQ(status.code(), code) << message;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  };
  const auto invalid = absl::StatusCode::kInvalidArgument;
  const auto unimplemented = absl::StatusCode::kUnimplemented;
  const auto with = [&](const auto& change) {
    PlannedSolve spec = FlowSpec();
    change(spec);
    return spec;
  };
  refused(with([](PlannedSolve& s) { s.tier = Tier::kFast; }), unimplemented, "tier fast", rows);
  refused(with([](PlannedSolve& s) { s.plan = Fixed(Method::kRk4, 0); }), invalid, "step", rows);
  refused(with([](PlannedSolve& s) { s.plan = AdaptivePlan{.method = {.method = Method::kRk4}}; }),
          invalid, "rk4", rows);
  refused(with([](PlannedSolve& s) { s.plan = Hypersolved(Method::kHeun, 1); }), invalid,
          "without a correction", rows);
  refused(with([&](PlannedSolve& s) { s.correction = correction_; }), invalid, "another plan",
          rows);
  refused(with([&](PlannedSolve& s) {
            s.plan = Hypersolved(Method::kEuler, 1);
            s.correction = correction_;
          }),
          invalid, "slope_2", rows);
  refused(with([](PlannedSolve& s) { s.span = {1.0, 0.0}; }), invalid, "span", rows);
  refused(with([](PlannedSolve& s) { s.save_at = {0.5, 0.4}; }), invalid, "save_at", rows);
  refused(with([](PlannedSolve& s) { s.want_outputs = true; }), invalid, "outputs", rows);
  refused(with([](PlannedSolve& s) { s.log_density = LogDensity::kStepMap; }), invalid,
          "fixed plan", rows);
  refused(FlowSpec(), invalid, "shape wanted [2, 2], found [2, 3]", NormalRows(2, {3}, 1));
  refused(FlowSpec(), invalid, "I64", HostTensor::Zeros(Dtype::kI64, {2, 2}));
  refused(FlowSpec(), invalid, "0 rows", HostTensor::Zeros(Dtype::kF32, {0, 2}));
  PlannedSolve images = {.model = fixture::RandomModel(fixture::ImageSpec(), 1),
                         .plan = Fixed(Method::kEuler, 1),
                         .entry = Entry::kNoise};
  EXPECT_EQ(runtime_->StartRun(SpecOf(images), 1).status().code(), invalid);
  images.entry = Entry::kInput;
  images.direction = Direction::kDataToNoise;
  EXPECT_EQ(runtime_->StartRun(SpecOf(images, Dtype::kF32), 1).status().code(), invalid);
  EXPECT_EQ(MakeDeviceRuntime("cuda:77").status().code(), invalid);
  EXPECT_EQ(MakeDeviceRuntime("").status().code(), invalid);
}

TEST_P(ReadableEngineTest, RunsOnManyThreadsShareARuntimeAndAModel) {
  const HostTensor rows = NormalRows(64, {2}, 13);
  const auto model = fixture::RandomModel(fixture::FlowSpec(), 5);  // nothing converted yet
  PlannedSolve spec = FlowSpec(Tier::kExact);
  spec.plan = Dopri5(1e-5);
  spec.model = model;
  std::vector<BatchResult> results(4);
  std::vector<std::thread> threads;
  for (BatchResult& result : results) {
    threads.emplace_back([&] {
      for (int i = 0; i < 5; ++i) result = Run(spec, rows);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const BatchResult& result : results) {
    EXPECT_EQ(result.state.bytes, results[0].state.bytes);
    EXPECT_THAT(result.status, Each(RowStatus::kConverged));
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, ReadableEngineTest, testing::ValuesIn(DeviceNames()),
                         DeviceTestName);

}  // namespace
}  // namespace hyperserve
