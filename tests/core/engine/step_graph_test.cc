// Captured steps on every CUDA device: bit for bit those of the readable engine in the same bucket.
// Skipped where there is no CUDA device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "core/engine/batch_spec.h"
#include "core/engine/device_runtime.h"
#include "core/engine/engine.h"
#include "core/io/tensor.h"
#include "core/model/net/cost.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "core/plan/step_control.h"
#include "core/plan/step_grid.h"
#include "tests/core/engine/engine_fixture.h"
#include "tests/testing/planned_solve.h"
#include "tests/testing/random_model.h"

namespace hyperserve {
namespace {

using testing::HasSubstr;

bool Never() { return false; }

class StepGraphTest : public EngineTest {
 protected:
  void SetUp() override {
    if (on_cpu()) GTEST_SKIP() << "captured steps want a CUDA device";
  }

  static Segment SegmentOf(const PlannedSolve& solve, const HostTensor& rows) {
    return {.rows = rows.shape[0],
            .data = View(rows),
            .condition = solve.condition,
            .control = ControlOf(solve)};
  }

  // Solves the segments in one run; each is admitted one step after the one before it.
  std::vector<std::string> Solved(const PlannedSolve& solve, const std::vector<HostTensor>& rows,
                                  int64_t bucket, const std::string& engine) {
    const BatchSpec spec = SpecOf(solve, rows[0].dtype);
    const auto started = runtime_->StartRun(spec, bucket).value();
    EXPECT_EQ(started.choice.engine, engine) << started.choice.why;
    std::vector<std::string> texts(rows.size());
    const auto take = [&] {
      const std::vector<SolvedSegment> all = started.run->TakeFinished().value();
      for (const SolvedSegment& one : all) {
        texts[static_cast<size_t>(one.ticket)] = Text(one.rows);
      }
    };
    for (const HostTensor& some : rows) {
      EXPECT_TRUE(started.run->Admit(SegmentOf(solve, some)).ok());
      started.run->Advance(engine == "graph" ? 1 : StepEvaluations(spec.method), Never).value();
      take();
    }
    while (!started.run->Advance(1, Never).value()) take();
    take();
    return texts;
  }

  void ExpectSameBits(const PlannedSolve& solve, const std::vector<HostTensor>& rows,
                      int64_t bucket) {
    const BatchSpec spec = SpecOf(solve, rows[0].dtype);
    const std::vector<std::string> step_by_step = Solved(solve, rows, bucket, "readable");
    ASSERT_TRUE(runtime_->WarmUp(spec, ControlOf(solve), bucket, Never).ok());
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(Solved(solve, rows, bucket, "graph") == step_by_step) << i;
    }
  }

  PlannedSolve Flow(StepPlan plan, Direction direction, Tier tier = Tier::kExact) const {
    const auto* fixed = std::get_if<FixedPlan>(&plan);
    return {.model = flow_,
            .correction = fixed != nullptr && fixed->hypersolved ? correction_ : nullptr,
            .plan = plan,
            .tier = tier,
            .entry = Entry::kState,
            .direction = direction};
  }

  const std::shared_ptr<const Model> flow_ = fixture::RandomModel(fixture::FlowSpec(), 1);
  const std::shared_ptr<const Hypersolver> correction_ =
      fixture::RandomHypersolver(fixture::FlowCorrectionSpec(), *flow_, 2);
};

TEST_P(StepGraphTest, FixedPlansOfFlows) {
  const std::vector<HostTensor> rows = {NormalRows(3, {2}, 3), NormalRows(4, {2}, 4),
                                        NormalRows(1, {2}, 5)};
  for (const Tier tier : {Tier::kExact, Tier::kDouble}) {
    ExpectSameBits(Flow(Fixed(Method::kRk4, 3), Direction::kDataToNoise, tier), rows, 8);
    ExpectSameBits(Flow(Fixed(Method::kRk4, 3), Direction::kNoiseToData, tier), rows, 16);
    ExpectSameBits(Flow(Hypersolved(Method::kHeun, 2), Direction::kNoiseToData, tier), rows, 8);
    ExpectSameBits(Flow(Fixed(Method::kEuler, 1), Direction::kDataToNoise, tier),
                   {NormalRows(1, {2}, 6)}, 1);
  }
}

// They start the steps that were captured for equal ones.
TEST_P(StepGraphTest, PlansOnAGrid) {
  const std::vector<HostTensor> rows = {NormalRows(3, {2}, 3), NormalRows(4, {2}, 4)};
  for (FixedPlan plan : {Fixed(Method::kRk4, 3), Hypersolved(Method::kHeun, 2)}) {
    const PlannedSolve equal = Flow(plan, Direction::kNoiseToData, Tier::kDouble);
    plan.grid.kind = StepGrid::Kind::kCosine;
    const PlannedSolve solve = Flow(plan, Direction::kNoiseToData, Tier::kDouble);
    const std::vector<std::string> step_by_step = Solved(solve, rows, 8, "readable");
    ASSERT_TRUE(runtime_->WarmUp(SpecOf(equal, Dtype::kF64), ControlOf(equal), 8, Never).ok());
    EXPECT_TRUE(Solved(solve, rows, 8, "graph") == step_by_step);
  }
}

TEST_P(StepGraphTest, ErrorControlOfFlows) {
  std::vector<HostTensor> rows = {NormalRows(3, {2}, 3), NormalRows(4, {2}, 4, 3.0)};
  ExpectSameBits(Flow(Dopri5(1e-5), Direction::kDataToNoise), rows, 8);
  ExpectSameBits(Flow(AdaptivePlan{.method = {Method::kHeunEuler}, .rtol = 1e-3, .atol = 1e-4},
                      Direction::kNoiseToData),
                 rows, 8);
  PlannedSolve limited = Flow(Dopri5(1e-9), Direction::kDataToNoise, Tier::kDouble);
  limited.max_steps = 4;
  ExpectSameBits(limited, {NormalRows(5, {2}, 7)}, 8);
  // Its rows leave for smaller buckets, and the captured step with them.
  HostTensor many = NormalRows(1024, {2}, 3);
  for (size_t i = 0; i < 2 * 1024; i += 5) many.as<double>()[i] *= 8.0;
  ExpectSameBits(Flow(Dopri5(1e-6), Direction::kDataToNoise), {many}, 1024);
}

TEST_P(StepGraphTest, Images) {
  const auto model = fixture::RandomModel(fixture::ImageSpec(), 1);
  const auto correction = fixture::RandomHypersolver(fixture::ImageCorrectionSpec(), *model, 2);
  const std::vector<HostTensor> rows = {NormalRows(3, {1, 12, 12}, 3),
                                        NormalRows(1, {1, 12, 12}, 4)};
  for (const StepPlan& plan : {StepPlan(Hypersolved(Method::kEuler, 2)), StepPlan(Dopri5(1e-4))}) {
    const bool fixed = std::holds_alternative<FixedPlan>(plan);
    ExpectSameBits({.model = model,
                    .correction = fixed ? correction : nullptr,
                    .plan = plan,
                    .tier = Tier::kDouble,
                    .want_outputs = true},
                   rows, 4);
  }
}

TEST_P(StepGraphTest, ConditionalFlows) {
  const auto model = fixture::RandomModel(fixture::ConditionalFlowSpec(), 1);
  const auto correction =
      fixture::RandomHypersolver(fixture::ConditionalCorrectionSpec(), *model, 2);
  const HostTensor condition = NormalRows(1, {3}, 3);
  const std::vector<HostTensor> rows = {NormalRows(3, {2}, 4), NormalRows(4, {2}, 5)};
  for (const StepPlan& plan : {StepPlan(Fixed(Method::kRk4, 3)), StepPlan(Dopri5(1e-4)),
                               StepPlan(Hypersolved(Method::kHeun, 2))}) {
    const auto* fixed = std::get_if<FixedPlan>(&plan);
    ExpectSameBits({.model = model,
                    .correction = fixed && fixed->hypersolved ? correction : nullptr,
                    .plan = plan,
                    .entry = Entry::kState,
                    .direction = Direction::kNoiseToData,
                    .condition = View(condition)},
                   rows, 8);
  }
}

TEST_P(StepGraphTest, RowsThatFail) {
  HostTensor rows = NormalRows(5, {2}, 3);
  rows.as<double>()[2] = 1.7e308;
  rows.as<double>()[5] = 1e306;
  for (const Tier tier : {Tier::kExact, Tier::kDouble}) {
    ExpectSameBits(Flow(Fixed(Method::kRk4, 3), Direction::kDataToNoise, tier), {rows}, 8);
    ExpectSameBits(Flow(Dopri5(1e-5), Direction::kDataToNoise, tier), {rows}, 8);
  }
}

// A run that ended takes rows again; a dropped segment leaves no trace.
TEST_P(StepGraphTest, ARunGoesOn) {
  const PlannedSolve solve = Flow(Hypersolved(Method::kHeun, 3), Direction::kNoiseToData);
  const HostTensor first = NormalRows(3, {2}, 3), second = NormalRows(4, {2}, 4);
  const BatchSpec spec = SpecOf(solve);
  ASSERT_TRUE(runtime_->WarmUp(spec, ControlOf(solve), 8, Never).ok());
  const std::string alone = Solved(solve, {second}, 8, "graph")[0];
  const auto started = runtime_->StartRun(spec, 8).value();
  const Ticket dropped = started.run->Admit(SegmentOf(solve, first)).value();
  EXPECT_FALSE(started.run->Advance(1, Never).value());
  started.run->Drop(dropped);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(started.run->Admit(SegmentOf(solve, second)).ok());
    EXPECT_TRUE(started.run->Advance(100, Never).value());
    EXPECT_TRUE(Text(started.run->TakeFinished().value().at(0).rows) == alone);
  }
}

TEST_P(StepGraphTest, WhoHasNoCapturedStepSaysWhy) {
  const PlannedSolve solve = Flow(Hypersolved(Method::kHeun, 2), Direction::kNoiseToData);
  const BatchSpec spec = SpecOf(solve);
  const auto why = [&](int64_t rows) { return runtime_->StartRun(spec, rows)->choice.why; };
  EXPECT_THAT(why(8), HasSubstr("no step of 8 rows was captured"));
  ASSERT_TRUE(runtime_->WarmUp(spec, ControlOf(solve), 8, Never).ok());
  EXPECT_THAT(why(8), testing::Not(HasSubstr("not graph")));
  EXPECT_THAT(why(9), HasSubstr("no step of 16 rows was captured"));
  {
    // A captured step is that of one run at a time; two are under way, and the third makes its own.
    const HostTensor rows = NormalRows(8, {2}, 3);
    std::vector<DeviceRuntime::StartedRun> runs;
    for (int i = 0; i < 3; ++i) runs.push_back(runtime_->StartRun(spec, 8).value());
    EXPECT_EQ(runs[1].choice.engine, "graph");
    EXPECT_EQ(runs[2].choice.engine, "readable");
    EXPECT_THAT(runs[2].choice.why, HasSubstr("2 runs use captured work now"));
    std::vector<std::string> texts;
    for (auto& one : runs) EXPECT_TRUE(one.run->Admit(SegmentOf(solve, rows)).ok());
    for (int step = 0; step < 2; ++step) {
      for (auto& one : runs) one.run->Advance(2, Never).value();
    }
    for (auto& one : runs) texts.push_back(Text(one.run->TakeFinished().value().at(0).rows));
    EXPECT_TRUE(texts[0] == texts[2] && texts[1] == texts[2]);
  }
  BatchSpec dense = spec;
  dense.log_density = LogDensity::kStepMap;
  EXPECT_THAT(runtime_->StartRun(dense, 8)->choice.why, HasSubstr("are not captured"));
}

// Steps belong to a generation: the next one has none until its own warm-up, and they go with it.
TEST_P(StepGraphTest, StepsAreThoseOfAGeneration) {
  PlannedSolve solve = Flow(Hypersolved(Method::kHeun, 2), Direction::kNoiseToData);
  ASSERT_TRUE(runtime_->WarmUp(SpecOf(solve), ControlOf(solve), 8, Never).ok());
  for (uint64_t seed = 10; seed < 14; ++seed) {
    solve.correction = fixture::RandomHypersolver(fixture::FlowCorrectionSpec(), *flow_, seed);
    ExpectSameBits(solve, {NormalRows(3, {2}, 3)}, 8);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, StepGraphTest, testing::ValuesIn(DeviceNames()), DeviceTestName);

}  // namespace
}  // namespace hyperserve
