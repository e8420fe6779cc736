// SlotRun on the CPU against the run that serves there: the same steps, in other tensor operations.
#include "core/engine/readable/slot_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>
#include <vector>

#include "core/engine/batch_spec.h"
#include "core/engine/device_runtime.h"
#include "core/engine/engine.h"
#include "core/io/tensor.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "core/plan/row_status.h"
#include "core/plan/step_control.h"
#include "core/plan/step_grid.h"
#include "tests/core/engine/engine_fixture.h"
#include "tests/testing/planned_solve.h"
#include "tests/testing/random_model.h"

namespace hyperserve {
namespace {

bool Never() { return false; }

FixedPlan Cosine(int steps) {
  FixedPlan plan = Fixed(Method::kRk4, steps);
  plan.grid.kind = StepGrid::Kind::kCosine;
  return plan;
}

class SlotRunTest : public testing::Test {
 protected:
  static std::unique_ptr<hyperserve::Run> StartRun(const BatchSpec& spec, int64_t rows) {
    const auto stream =
        std::make_shared<const c10::Stream>(c10::Stream::DEFAULT, at::Device(at::kCPU));
    return MakeSlotRun(spec, stream, rows);
  }

  static Segment SegmentOf(const PlannedSolve& solve, const HostTensor& rows) {
    return {.rows = rows.shape[0],
            .data = View(rows),
            .condition = solve.condition,
            .control = ControlOf(solve)};
  }

  static BatchResult Alone(const PlannedSolve& solve, const HostTensor& rows) {
    const auto run = StartRun(SpecOf(solve, rows.dtype), rows.shape[0]);
    EXPECT_TRUE(run->Admit(SegmentOf(solve, rows)).ok());
    while (!run->Advance(1, Never).value()) continue;
    return std::move(run->TakeFinished().value().at(0).rows);
  }

  void ExpectSame(const BatchResult& found, const BatchResult& expected, double tolerance) {
    EXPECT_EQ(found.status, expected.status);
    EXPECT_EQ(found.nfe, expected.nfe);
    EXPECT_EQ(found.correction_evaluations, expected.correction_evaluations);
    EXPECT_EQ(found.macs, expected.macs);
    ExpectNear(found.state, expected.state, tolerance);
    ExpectNear(found.outputs, expected.outputs, tolerance);
  }

  static void ExpectNear(const HostTensor& found, const HostTensor& expected, double tolerance) {
    ASSERT_EQ(found.shape, expected.shape);
    ASSERT_EQ(found.dtype, expected.dtype);
    if (expected.shape.empty()) return;
    for (int64_t i = 0; i < expected.elements(); ++i) {
      const double wanted = Number(expected, i);
      if (std::isnan(wanted)) {
        EXPECT_TRUE(std::isnan(Number(found, i))) << i;
      } else {
        ASSERT_NEAR(Number(found, i), wanted, tolerance * (1 + std::abs(wanted))) << i;
      }
    }
  }

  void ExpectAsServed(const PlannedSolve& solve, const HostTensor& rows, double tolerance) {
    ExpectSame(Alone(solve, rows), Solve(*runtime_, solve, View(rows)).value(), tolerance);
  }

  PlannedSolve Flow(StepPlan plan, Direction direction = Direction::kDataToNoise) const {
    const auto* fixed = std::get_if<FixedPlan>(&plan);
    return {.model = flow_,
            .correction = fixed != nullptr && fixed->hypersolved ? correction_ : nullptr,
            .plan = plan,
            .tier = Tier::kDouble,
            .entry = Entry::kState,
            .direction = direction};
  }

  const std::unique_ptr<DeviceRuntime> runtime_ = MakeDeviceRuntime("cpu").value();
  const std::shared_ptr<const Model> flow_ = fixture::RandomModel(fixture::FlowSpec(), 1);
  const std::shared_ptr<const Hypersolver> correction_ =
      fixture::RandomHypersolver(fixture::FlowCorrectionSpec(), *flow_, 2);
};

// The rounding of a few operations in double; error control turns it into step sizes.
constexpr double kRounding = 1e-12, kControlled = 1e-10;
// The first step follows from a difference of two slopes that nearly agree, so a row that does not
// get to the end stops at a slightly different depth.
constexpr double kDepth = 1e-6;

TEST_F(SlotRunTest, FixedPlans) {
  const HostTensor rows = NormalRows(7, {2}, 3);
  for (const Direction direction : {Direction::kDataToNoise, Direction::kNoiseToData}) {
    ExpectAsServed(Flow(Fixed(Method::kEuler, 1), direction), rows, kRounding);
    ExpectAsServed(Flow(Fixed(Method::kRk4, 3), direction), rows, kRounding);
    ExpectAsServed(Flow(Fixed(Method::kDopri5, 2), direction), rows, kRounding);
    // Its first weight is negative, so its update is taken from a difference of slopes.
    const FixedPlan small_alpha{.method = {Method::kAlpha, 0.2}, .steps = 3};
    ExpectAsServed(Flow(small_alpha, direction), rows, kRounding);
  }
  const auto hypersolved = Flow(Hypersolved(Method::kHeun, 3), Direction::kNoiseToData);
  ExpectAsServed(hypersolved, rows, kRounding);
}

TEST_F(SlotRunTest, PlansOnAGrid) {
  const HostTensor rows = NormalRows(7, {2}, 3);
  for (const StepGrid& grid :
       {StepGrid{.kind = StepGrid::Kind::kCosine},
        StepGrid{.kind = StepGrid::Kind::kSway, .sway = -0.75},
        StepGrid{.kind = StepGrid::Kind::kListed, .shares = {0, 0.1, 0.5, 1}}}) {
    FixedPlan plan = Fixed(Method::kRk4, 3);
    plan.grid = grid;
    ExpectAsServed(Flow(plan, Direction::kDataToNoise), rows, kRounding);
    plan = Hypersolved(Method::kHeun, 3);
    plan.grid = grid;
    ExpectAsServed(Flow(plan, Direction::kNoiseToData), rows, kRounding);
  }
}

TEST_F(SlotRunTest, AdaptivePlans) {
  const HostTensor rows = NormalRows(7, {2}, 3, 2.0);
  for (const Direction direction : {Direction::kDataToNoise, Direction::kNoiseToData}) {
    ExpectAsServed(Flow(Dopri5(1e-6), direction), rows, kControlled);
    ExpectAsServed(
        Flow(AdaptivePlan{.method = {Method::kHeunEuler}, .rtol = 1e-4, .atol = 1e-5}, direction),
        rows, kControlled);
  }
  PlannedSolve limited = Flow(Dopri5(1e-9));
  limited.max_steps = 4;
  ExpectAsServed(limited, rows, kDepth);
}

TEST_F(SlotRunTest, Images) {
  const auto model = fixture::RandomModel(fixture::ImageSpec(), 1);
  const auto correction = fixture::RandomHypersolver(fixture::ImageCorrectionSpec(), *model, 2);
  HostTensor rows = NormalRows(3, {1, 12, 12}, 3);
  for (const StepPlan& plan : {StepPlan(Hypersolved(Method::kEuler, 2)), StepPlan(Dopri5(1e-4))}) {
    const bool fixed = std::holds_alternative<FixedPlan>(plan);
    ExpectAsServed({.model = model,
                    .correction = fixed ? correction : nullptr,
                    .plan = plan,
                    .tier = Tier::kDouble,
                    .want_outputs = true},
                   rows, kControlled);
  }
}

TEST_F(SlotRunTest, RowsThatFail) {
  HostTensor rows = NormalRows(5, {2}, 3);
  rows.as<double>()[2] = 1.7e308;
  rows.as<double>()[5] = 1e306;
  ExpectAsServed(Flow(Fixed(Method::kRk4, 3)), rows, kRounding);
  ExpectAsServed(Flow(Hypersolved(Method::kHeun, 2), Direction::kNoiseToData), rows, kRounding);
  ExpectAsServed(Flow(Dopri5(1e-5)), rows, kControlled);
}

// Rows end at different steps, and the run moves to smaller buckets.
TEST_F(SlotRunTest, ManyRowsUnderErrorControl) {
  HostTensor rows = NormalRows(2048, {2}, 3);
  for (size_t i = 0; i < 2 * 2048; i += 5) rows.as<double>()[i] *= 8.0;
  ExpectAsServed(Flow(Dopri5(1e-7)), rows, kControlled);
}

TEST_F(SlotRunTest, SegmentsJoinAndLeave) {
  const HostTensor a = NormalRows(20, {2}, 3), b = NormalRows(9, {2}, 4), c = NormalRows(3, {2}, 5);
  for (const auto& [first, second] :
       {std::pair{Flow(Fixed(Method::kRk4, 5)), Flow(Fixed(Method::kRk4, 2))},
        std::pair{Flow(Cosine(5)), Flow(Cosine(2))},
        std::pair{Flow(Dopri5(1e-8)), Flow(Dopri5(1e-3))}}) {
    const auto run = StartRun(SpecOf(first), 32);
    const int64_t room = run->room();
    EXPECT_GE(room, 32);
    const Ticket ticket_a = run->Admit(SegmentOf(first, a)).value();
    EXPECT_FALSE(run->Advance(6, Never).value());
    const Ticket ticket_b = run->Admit(SegmentOf(second, b)).value();
    EXPECT_EQ(run->room(), room - 29);
    EXPECT_FALSE(run->Advance(6, Never).value());
    const Ticket dropped = run->Admit(SegmentOf(second, c)).value();
    EXPECT_FALSE(run->Advance(2, Never).value());
    run->Drop(dropped);
    std::vector<SolvedSegment> solved;
    for (bool done = false; !done;) {
      done = run->Advance(1, Never).value();
      std::vector<SolvedSegment> more = run->TakeFinished().value();
      std::ranges::move(more, std::back_inserter(solved));
    }
    ASSERT_EQ(solved.size(), 2u);
    const bool b_first = solved[0].ticket == ticket_b;
    EXPECT_TRUE(b_first || solved[0].ticket == ticket_a);
    ExpectSame(solved[b_first ? 1 : 0].rows, Solve(*runtime_, first, View(a)).value(), kControlled);
    ExpectSame(solved[b_first ? 0 : 1].rows, Solve(*runtime_, second, View(b)).value(),
               kControlled);
    EXPECT_EQ(run->room(), room);
  }
}

// Rows that join another's batch, each with a condition of its own or one for all of a segment.
TEST_F(SlotRunTest, ConditionsGoWithTheirRows) {
  const auto model = fixture::RandomModel(fixture::ConditionalFlowSpec(), 1);
  const auto correction =
      fixture::RandomHypersolver(fixture::ConditionalCorrectionSpec(), *model, 2);
  const HostTensor a = NormalRows(5, {2}, 3), b = NormalRows(3, {2}, 4);
  const HostTensor of_a = NormalRows(5, {3}, 5), of_b = NormalRows(1, {3}, 6);
  for (const StepPlan& plan : {StepPlan(Fixed(Method::kRk4, 5)),
                               StepPlan(Hypersolved(Method::kHeun, 3)), StepPlan(Dopri5(1e-6))}) {
    const auto* fixed = std::get_if<FixedPlan>(&plan);
    PlannedSolve first{.model = model,
                       .correction = fixed && fixed->hypersolved ? correction : nullptr,
                       .plan = plan,
                       .tier = Tier::kDouble,
                       .entry = Entry::kState,
                       .direction = Direction::kNoiseToData,
                       .condition = View(of_a)};
    PlannedSolve second = first;
    second.condition = View(of_b);
    ASSERT_TRUE(SlotRunSupports(SpecOf(first)));
    const auto run = StartRun(SpecOf(first), 16);
    const Ticket ticket_a = run->Admit(SegmentOf(first, a)).value();
    EXPECT_FALSE(run->Advance(2, Never).value());
    ASSERT_TRUE(run->Admit(SegmentOf(second, b)).ok());
    std::vector<SolvedSegment> solved;
    for (bool done = false; !done;) {
      done = run->Advance(1, Never).value();
      std::ranges::move(run->TakeFinished().value(), std::back_inserter(solved));
    }
    ASSERT_EQ(solved.size(), 2u);
    for (const SolvedSegment& one : solved) {
      const bool of_first = one.ticket == ticket_a;
      const auto alone = Solve(*runtime_, of_first ? first : second, View(of_first ? a : b));
      ExpectSame(one.rows, *alone, kControlled);
    }
  }
}

TEST_F(SlotRunTest, ControlSignalsAndGuidanceAreForTheOtherRun) {
  const auto model = fixture::RandomModel(fixture::GuidedFlowSpec(), 1);
  BatchSpec spec{.model = model, .correction = nullptr, .direction = Direction::kNoiseToData};
  SetPlan(Fixed(Method::kRk4, 2), spec);
  EXPECT_TRUE(SlotRunSupports(spec));
  spec.guidance = 1;
  EXPECT_FALSE(SlotRunSupports(spec));
  spec.guidance = 0;
  spec.knots.depths = {0.0, 1.0};
  EXPECT_FALSE(SlotRunSupports(spec));
}

TEST_F(SlotRunTest, AfterACancellationTheRunIsEmpty) {
  const HostTensor rows = NormalRows(4, {2}, 3);
  const PlannedSolve solve = Flow(Fixed(Method::kRk4, 3));
  const auto run = StartRun(SpecOf(solve), 4);
  ASSERT_TRUE(run->Admit(SegmentOf(solve, rows)).ok());
  EXPECT_FALSE(run->Advance(3, Never).value());
  EXPECT_EQ(run->Advance(1, [] { return true; }).status().code(), absl::StatusCode::kCancelled);
  ASSERT_TRUE(run->Admit(SegmentOf(solve, rows)).ok());
  while (!run->Advance(1, Never).value()) continue;
  ExpectSame(run->TakeFinished().value().at(0).rows, Solve(*runtime_, solve, View(rows)).value(),
             kRounding);
}

}  // namespace
}  // namespace hyperserve
