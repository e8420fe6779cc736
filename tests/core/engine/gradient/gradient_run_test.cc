// Runs of derivatives beside the numbers: segments together, rows that fail, cancellation, what is
// refused in words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
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
#include "tests/core/engine/engine_fixture.h"
#include "tests/testing/planned_solve.h"
#include "tests/testing/random_model.h"

namespace hyperserve {
namespace {

using ::testing::HasSubstr;

class GradientRunTest : public testing::Test {
 protected:
  PlannedSolve Of(StepPlan plan) const {
    return {.model = model_,
            .plan = plan,
            .entry = Entry::kState,
            .derivative = Derivative::kVjp,
            .vector = View(vectors_)};
  }

  std::string Refusal(const PlannedSolve& solve) {
    return std::string(Solve(*runtime_, solve, View(rows_)).status().message());
  }

  Segment SegmentOf(int64_t begin, int64_t rows, int64_t steps) const {
    return {.rows = rows,
            .data = RowsOf(View(rows_), begin, rows),
            .vector = RowsOf(View(vectors_), begin, rows),
            .control = FixedSteps{.steps = static_cast<int>(steps)}};
  }

  const std::unique_ptr<DeviceRuntime> runtime_ = MakeDeviceRuntime("cpu").value();
  const std::shared_ptr<const Model> model_ = fixture::RandomModel(fixture::FlowSpec(), 1);
  const HostTensor rows_ = NormalRows(6, {2}, 1), vectors_ = NormalRows(6, {2}, 2);
};

TEST_F(GradientRunTest, SegmentsGoTogetherAndTheNextOnesAfterThem) {
  const auto run =
      std::move(runtime_->StartRun(SpecOf(Of(Fixed(Method::kHeun, 2))), 6).value().run);
  std::map<Ticket, std::pair<int64_t, int64_t>> admitted;  // rows and steps
  const auto admit = [&](int64_t begin, int64_t steps) {
    const Ticket ticket = run->Admit(SegmentOf(begin, 2, steps)).value();
    admitted[ticket] = {begin, steps};
    return ticket;
  };
  admit(0, 3);
  const Ticket dropped = admit(2, 2);
  admit(4, 3);
  ASSERT_FALSE(run->Advance(1, nullptr).value());
  EXPECT_EQ(run->room(), 0);
  EXPECT_EQ(run->Admit(SegmentOf(0, 1, 1)).status().code(), absl::StatusCode::kResourceExhausted);
  run->Drop(dropped);
  std::vector<SolvedSegment> solved;
  const auto finish = [&] {
    while (!run->Advance(1, nullptr).value()) {
    }
    std::vector<SolvedSegment> taken = run->TakeFinished().value();
    for (SolvedSegment& one : taken) solved.push_back(std::move(one));
  };
  finish();
  admit(1, 2);
  finish();
  ASSERT_EQ(solved.size(), 3u);
  for (const SolvedSegment& one : solved) {
    const auto [begin, steps] = admitted.at(one.ticket);
    PlannedSolve alone = Of(Fixed(Method::kHeun, static_cast<int>(steps)));
    alone.vector = RowsOf(View(vectors_), begin, 2);
    const BatchResult wanted = Solve(*runtime_, alone, RowsOf(View(rows_), begin, 2)).value();
    EXPECT_EQ(one.rows.product.bytes, wanted.product.bytes);
    EXPECT_EQ(one.rows.state.bytes, wanted.state.bytes);
    EXPECT_EQ(one.rows.nfe, wanted.nfe);
  }
}

TEST_F(GradientRunTest, ItStopsBetweenStepsAlsoOnItsWayBack) {
  for (const int stop : {1, 3, 5}) {  // of 3 steps to the end and 3 back
    const auto run =
        std::move(runtime_->StartRun(SpecOf(Of(Fixed(Method::kHeun, 3))), 6).value().run);
    ASSERT_TRUE(run->Admit(SegmentOf(0, 6, 3)).ok());
    int asked = 0;
    const auto advanced = run->Advance(100, [&] { return asked++ == stop; });
    EXPECT_EQ(advanced.status().code(), absl::StatusCode::kCancelled);
    ASSERT_TRUE(run->Admit(SegmentOf(0, 6, 3)).ok());  // it may be used again
    EXPECT_TRUE(run->Advance(6, nullptr).value());
    EXPECT_EQ(run->TakeFinished().value().size(), 1u);
  }
}

TEST_F(GradientRunTest, ARowThatFailsFailsAlone) {
  HostTensor rows = rows_;
  rows.as<double>()[2] = std::numeric_limits<double>::infinity();
  PlannedSolve solve = Of(Fixed(Method::kHeun, 2));
  const BatchResult found = Solve(*runtime_, solve, View(rows)).value();
  const BatchResult wanted = Solve(*runtime_, solve, View(rows_)).value();
  for (int64_t row = 0; row < 6; ++row) {
    EXPECT_EQ(found.status[static_cast<size_t>(row)],
              row == 1 ? RowStatus::kNonFinite : RowStatus::kConverged);
    if (row == 1) continue;
    EXPECT_EQ(RowBytes(found.product, row), RowBytes(wanted.product, row));
  }
}

TEST_F(GradientRunTest, WhatHasNoDerivativeIsRefusedInWords) {
  EXPECT_THAT(Refusal(Of(Dopri5(1e-3))), HasSubstr("that of a fixed plan"));
  EXPECT_THAT(Refusal(Of(Fixed(Method::kAb2, 65))), HasSubstr("have at most 64"));
  PlannedSolve solve = Of(Fixed(Method::kEuler, 2));
  solve.vector = {};
  EXPECT_THAT(Refusal(solve), HasSubstr("vector: shape wanted [6, 2], found []"));
  solve.vector = RowsOf(View(vectors_), 0, 5);
  EXPECT_THAT(Refusal(solve), HasSubstr("vector: shape wanted [6, 2], found [5, 2]"));
  solve.vector = View(vectors_);
  solve.condition_vector = View(vectors_);
  EXPECT_THAT(Refusal(solve), HasSubstr("a tangent of a condition that is not asked for"));
  solve.condition_vector = {};
  solve.tier = Tier::kFast;
  EXPECT_THAT(Refusal(solve), HasSubstr("tiers exact and double"));
  solve.tier = Tier::kExact;
  solve.save_at = {0.5};
  EXPECT_THAT(Refusal(solve), HasSubstr("of z(s1) or of log p alone"));
  solve.save_at = {};
  solve.log_density = LogDensity::kDivergence;
  EXPECT_THAT(Refusal(solve), HasSubstr("a vector for rows without a product"));
  solve.vector = {};
  solve.direction = Direction::kNoiseToData;
  EXPECT_THAT(Refusal(solve), HasSubstr("a gradient, from data to noise"));
  solve.direction = Direction::kDataToNoise;
  solve.derivative = Derivative::kJvp;
  EXPECT_THAT(Refusal(solve), HasSubstr("a gradient, from data to noise"));
}

}  // namespace
}  // namespace hyperserve
