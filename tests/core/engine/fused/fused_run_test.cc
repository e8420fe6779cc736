// The bookkeeping of a fused run, with a flow on the host in place of the kernel.
#include "core/engine/fused/fused_run.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "core/engine/batch_spec.h"
#include "core/engine/device_runtime.h"
#include "core/engine/engine.h"
#include "core/engine/fused/fused_flow.h"
#include "core/engine/torch_scope.h"
#include "core/io/tensor.h"
#include "core/kernels/flow/flow_model.h"
#include "core/kernels/flow/flow_rows.h"
#include "core/model/layers/activations.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "core/plan/row_status.h"
#include "core/plan/step_control.h"
#include "tests/testing/flow_specs.h"
#include "tests/testing/random_model.h"

namespace hyperserve {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Adds 100 to the start; that of noise is the row's number. Rows that start below zero are unfit;
// the end of rows that start at 77 is not finite.
class AddingFlow final : public FusedFlow {
 public:
  bool Takes(const kernels::FlowTask&) const override { return true; }
  int64_t RowsAtOnce(const kernels::FlowAdaptivePlan&) const override { return rows_at_once; }
  void Solve(const kernels::FlowTask& task, const kernels::FlowRows& rows) const override {
    TORCH_CHECK(!broken, "the device is gone");
    launches.push_back(rows.count);
    const auto* fixed = std::get_if<kernels::FlowPlan>(&task);
    for (int64_t row = 0; row < rows.count; ++row) {
      const float start = rows.z0 != nullptr ? rows.z0[row]
                                             : static_cast<float>(rows.first_row) +
                                                   static_cast<float>(row) + all_unfit * -1e6f;
      rows.z1[row] = start == 77.0f ? kInfinity : start + 100.0f;
      if (fixed != nullptr && fixed->density != kernels::FlowDensity::kNone) {
        rows.log_density[row] = start == 88.0f ? kInfinity : -start;
      }
      rows.unfit[row] = start < 0.0f ? kernels::kRowUnfit : kernels::kRowFits;
      if (fixed != nullptr) continue;
      rows.evaluations[row] = static_cast<int32_t>(start);
      if (row >= rows_ended) rows.unfit[row] = kernels::kRowUnfinished;
    }
  }
  mutable std::vector<int64_t> launches;  // their rows
  bool broken = false;
  float all_unfit = 0.0f;  // 1: all rows of noise
  int64_t rows_at_once = 1 << 20;
  int64_t rows_ended = 1 << 20;  // of an adaptive launch
};

class FusedRunTest : public testing::Test {
 protected:
  BatchSpec Spec(Entry entry = Entry::kState) const {
    return {.model = model_,
            .method = {Method::kHeun},
            .tier = Tier::kFast,
            .entry = entry,
            .direction = Direction::kNoiseToData};
  }
  std::unique_ptr<hyperserve::Run> Start(const BatchSpec& spec) const {
    return MakeFusedRun(spec,
                        std::make_shared<c10::Stream>(c10::Stream::DEFAULT, at::Device(at::kCPU)),
                        [this](int64_t) { return flow_; });
  }
  // What the readable engine says of these rows in tier exact.
  BatchResult Exact(BatchSpec spec, const Segment& segment) {
    spec.tier = Tier::kExact;
    const FixedPlan plan{.method = spec.method,
                         .steps = static_cast<int>(std::get<FixedSteps>(segment.control).steps)};
    return SolveAlone(*runtime_, spec, plan, segment).value();
  }

  static HostTensor Rows(const std::vector<float>& values) {
    HostTensor rows = HostTensor::Zeros(Dtype::kF32, {static_cast<int64_t>(values.size()), 1});
    std::copy(values.begin(), values.end(), rows.as<float>().begin());
    return rows;
  }
  static Segment SegmentOf(const HostTensor& rows, int64_t steps = 1) {
    return {.rows = rows.shape[0], .data = rows.view(), .control = FixedSteps{.steps = steps}};
  }
  static std::vector<float> States(const BatchResult& solved) {
    const auto states = solved.state.as<float>();
    return {states.begin(), states.end()};
  }

  const std::shared_ptr<const Model> model_ =
      fixture::RandomModel(fixture::FusedFlowSpec({TanhLayer{}}, 1), 1);
  const std::unique_ptr<DeviceRuntime> runtime_ = MakeDeviceRuntime("cpu").value();
  const std::shared_ptr<AddingFlow> flow_ = std::make_shared<AddingFlow>();
};

TEST_F(FusedRunTest, OneAdvanceSolvesWhatWaits) {
  const auto run = Start(Spec());
  const HostTensor a = Rows({1, 2}), b = Rows({3});
  const Ticket first = run->Admit(SegmentOf(a, 2)).value();
  const Ticket second = run->Admit(SegmentOf(b, 5)).value();
  EXPECT_TRUE(run->Advance(1, nullptr).value());
  EXPECT_THAT(flow_->launches, ElementsAre(2, 1));
  const std::vector<SolvedSegment> solved = run->TakeFinished().value();
  ASSERT_EQ(solved.size(), 2u);
  EXPECT_EQ(solved[0].ticket, first);
  EXPECT_THAT(States(solved[0].rows), ElementsAre(101, 102));
  EXPECT_THAT(solved[0].rows.nfe, ElementsAre(4, 4));
  EXPECT_THAT(solved[0].rows.correction_evaluations, ElementsAre(0, 0));
  EXPECT_THAT(solved[0].rows.macs, Each(4 * model_->field_macs()));
  EXPECT_EQ(solved[0].rows.bucket, 64);
  EXPECT_EQ(solved[0].rows.solved_again, 0);
  EXPECT_EQ(solved[1].ticket, second);
  EXPECT_THAT(States(solved[1].rows), ElementsAre(103));
  EXPECT_THAT(solved[1].rows.nfe, ElementsAre(10));
  EXPECT_TRUE(run->TakeFinished().value().empty());
}

TEST_F(FusedRunTest, CorrectionsAreCounted) {
  BatchSpec spec = Spec();
  spec.correction = fixture::RandomHypersolver(fixture::FusedCorrectionSpec(1), *model_, 2);
  const auto run = Start(spec);
  const HostTensor rows = Rows({1});
  ASSERT_TRUE(run->Admit(SegmentOf(rows, 3)).ok());
  EXPECT_TRUE(run->Advance(1, nullptr).value());
  const BatchResult solved = run->TakeFinished().value().at(0).rows;
  EXPECT_THAT(solved.correction_evaluations, ElementsAre(3));
  EXPECT_THAT(solved.macs, ElementsAre(6 * model_->field_macs() + 3 * spec.correction->macs()));
}

TEST_F(FusedRunTest, LogDensitiesAreOfTheirRows) {
  BatchSpec spec = Spec();
  spec.log_density = LogDensity::kDivergence;
  const auto run = Start(spec);
  const HostTensor a = Rows({1, 88}), b = Rows({-2, 3});
  for (const HostTensor* rows : {&a, &b}) ASSERT_TRUE(run->Admit(SegmentOf(*rows, 2)).ok());
  EXPECT_TRUE(run->Advance(1, nullptr).value());
  const std::vector<SolvedSegment> solved = run->TakeFinished().value();
  ASSERT_EQ(solved.size(), 2u);
  const BatchResult exact_a = Exact(spec, SegmentOf(a, 2)), exact_b = Exact(spec, SegmentOf(b, 2));
  const auto densities = [](const BatchResult& of) { return of.log_density.as<double>(); };
  EXPECT_THAT(densities(solved[0].rows), ElementsAre(-1, densities(exact_a)[1]));
  EXPECT_THAT(densities(solved[1].rows), ElementsAre(densities(exact_b)[0], -3));
  EXPECT_THAT(States(solved[1].rows), ElementsAre(States(exact_b)[0], 103));
  EXPECT_THAT(States(solved[0].rows), ElementsAre(101, 188)) << "as without densities";
  EXPECT_EQ(solved[0].rows.solved_again, 1);
  EXPECT_EQ(solved[1].rows.solved_again, 1);
  EXPECT_EQ(solved[0].rows.macs, exact_a.macs);
}

TEST_F(FusedRunTest, RowsThatDoNotFitAreSolvedInFloat32) {
  const auto run = Start(Spec());
  const HostTensor a = Rows({1, -2, 77, -3}), b = Rows({5}), c = Rows({kInfinity});
  for (const HostTensor* rows : {&a, &b, &c}) ASSERT_TRUE(run->Admit(SegmentOf(*rows, 2)).ok());
  EXPECT_TRUE(run->Advance(1, nullptr).value());
  const std::vector<SolvedSegment> solved = run->TakeFinished().value();
  ASSERT_EQ(solved.size(), 3u);
  const std::vector<float> exact = States(Exact(Spec(), SegmentOf(a, 2)));
  EXPECT_THAT(States(solved[0].rows), ElementsAre(101, exact[1], exact[2], exact[3]));
  EXPECT_EQ(solved[0].rows.solved_again, 3);
  EXPECT_THAT(solved[0].rows.status, Each(RowStatus::kConverged));
  EXPECT_THAT(States(solved[1].rows), ElementsAre(105));
  EXPECT_EQ(solved[1].rows.solved_again, 0);
  EXPECT_THAT(solved[2].rows.status, ElementsAre(RowStatus::kNonFinite));
  EXPECT_THAT(solved[2].rows.nfe, ElementsAre(2));  // it ended with the first step
}

TEST_F(FusedRunTest, NoiseThatDoesNotFitIsThatOfItsRow) {
  flow_->all_unfit = 1.0f;
  const auto run = Start(Spec(Entry::kNoise));
  const Segment segment{.rows = 1100,  // more than are solved again at once
                        .data = {},
                        .seed = 9,
                        .first_row = 7,
                        .control = FixedSteps{}};
  ASSERT_TRUE(run->Admit(segment).ok());
  EXPECT_TRUE(run->Advance(1, nullptr).value());
  const BatchResult solved = run->TakeFinished().value().at(0).rows;
  EXPECT_EQ(States(solved), States(Exact(Spec(Entry::kNoise), segment)));
  EXPECT_EQ(solved.solved_again, 1100);
}

TEST_F(FusedRunTest, LaunchesAreBounded) {
  EXPECT_EQ(LaunchRows(2), 10'000'000);
  EXPECT_EQ(LaunchRows(kLaunchEvaluationsMax), kLaunchRowsLeast);
  const auto run = Start(Spec(Entry::kNoise));
  const int64_t rows = kLaunchRowsLeast + 5;
  const auto segment = [](int64_t count) {
    return Segment{
        .rows = count, .data = {}, .first_row = 100, .control = FixedSteps{.steps = 2500}};
  };
  ASSERT_TRUE(run->Admit(segment(rows)).ok());
  ASSERT_TRUE(run->Admit(segment(3)).ok());
  int asked = 0;
  const auto never = [&] { return ++asked == 0; };
  EXPECT_TRUE(run->Advance(1, never).value());
  EXPECT_EQ(asked, 3);
  EXPECT_THAT(flow_->launches, ElementsAre(kLaunchRowsLeast, 5, 3));
  const std::vector<SolvedSegment> solved = run->TakeFinished().value();
  ASSERT_EQ(solved.size(), 2u);
  EXPECT_EQ(States(solved[0].rows).back(), static_cast<float>(200 + rows - 1));
  EXPECT_THAT(States(solved[1].rows), ElementsAre(200, 201, 202));
}

TEST_F(FusedRunTest, AdaptiveRowsHaveTheirOwnEvaluations) {
  BatchSpec spec = Spec();
  spec.method = {Method::kDopri5};
  spec.stepping = Stepping::kErrorControlled;
  spec.tier = Tier::kExact;
  const auto run = Start(spec);
  const HostTensor a = Rows({8, 14}), b = Rows({20, -1});
  for (const HostTensor* rows : {&a, &b}) {
    ASSERT_TRUE(run->Admit({.rows = 2, .data = rows->view(), .control = ErrorControl{}}).ok());
  }
  EXPECT_TRUE(run->Advance(1, nullptr).value());
  const std::vector<SolvedSegment> solved = run->TakeFinished().value();
  ASSERT_EQ(solved.size(), 2u);
  EXPECT_THAT(solved[0].rows.nfe, ElementsAre(8, 14));
  EXPECT_THAT(solved[0].rows.macs,
              ElementsAre(8 * model_->field_macs(), 14 * model_->field_macs()));
  EXPECT_THAT(States(solved[0].rows), ElementsAre(108, 114));
  EXPECT_EQ(solved[0].rows.solved_again, 0);
  EXPECT_EQ(solved[1].rows.nfe[0], 20);
  EXPECT_GE(solved[1].rows.nfe[1], 8);  // the readable engine's
  EXPECT_EQ(solved[1].rows.solved_again, 1);
}

// Launches are as long as they can be expected to take, and halved where they took too long.
TEST_F(FusedRunTest, AdaptiveLaunchesThatEndTooSoonAreHalved) {
  BatchSpec spec = Spec(Entry::kNoise);
  spec.method = {Method::kDopri5};
  spec.stepping = Stepping::kErrorControlled;
  spec.tier = Tier::kExact;
  const auto run = Start(spec);
  flow_->rows_at_once = 4 * kLaunchRowsLeast;
  flow_->rows_ended = 2 * kLaunchRowsLeast;
  const int64_t rows = 6 * kLaunchRowsLeast;
  ASSERT_TRUE(
      run->Admit({.rows = rows, .data = {}, .first_row = 100, .control = ErrorControl{}}).ok());
  EXPECT_TRUE(run->Advance(1, nullptr).value());
  const int64_t half = 3 * kLaunchRowsLeast / 2;
  EXPECT_THAT(flow_->launches, ElementsAre(2 * half, half, half, half, half));
  const BatchResult solved = run->TakeFinished().value().at(0).rows;
  EXPECT_EQ(solved.solved_again, 0);
  EXPECT_EQ(States(solved).back(), static_cast<float>(200 + rows - 1));
}

TEST_F(FusedRunTest, RefusesWhatOneLaunchMayNotTake) {
  const auto run = Start(Spec());
  const HostTensor rows = Rows({1});
  const absl::Status status = run->Admit(SegmentOf(rows, 2501)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("more than 2500"));
  EXPECT_FALSE(run->Admit(SegmentOf(Rows({}))).ok());
  EXPECT_TRUE(run->Admit(SegmentOf(rows, 2500)).ok());
}

TEST_F(FusedRunTest, DroppedSegmentsHaveNoResult) {
  const auto run = Start(Spec());
  const HostTensor rows = Rows({1});
  const Ticket waiting = run->Admit(SegmentOf(rows)).value();
  const Ticket solved = run->Admit(SegmentOf(rows)).value();
  const Ticket kept = run->Admit(SegmentOf(rows)).value();
  run->Drop(waiting);
  EXPECT_TRUE(run->Advance(1, nullptr).value());
  EXPECT_THAT(flow_->launches, ElementsAre(1, 1));
  run->Drop(solved);
  const std::vector<SolvedSegment> finished = run->TakeFinished().value();
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_EQ(finished[0].ticket, kept);
}

TEST_F(FusedRunTest, AnErrorEmptiesTheRun) {
  const auto run = Start(Spec());
  const HostTensor rows = Rows({1});
  ASSERT_TRUE(run->Admit(SegmentOf(rows)).ok());
  EXPECT_EQ(run->Advance(1, [] { return true; }).status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(flow_->launches.empty());
  ASSERT_TRUE(run->Admit(SegmentOf(rows)).ok());
  flow_->broken = true;
  const absl::Status broken = run->Advance(1, nullptr).status();
  EXPECT_EQ(broken.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(broken.message()), HasSubstr("the device is gone"));
  flow_->broken = false;
  ASSERT_TRUE(run->Admit(SegmentOf(rows)).ok());
  EXPECT_TRUE(run->Advance(1, nullptr).value());
  EXPECT_EQ(run->TakeFinished().value().size(), 1u);
}

}  // namespace
}  // namespace hyperserve
