#include "core/engine/plan_error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "core/engine/batch_spec.h"
#include "core/engine/engine.h"
#include "core/io/tensor.h"
#include "core/plan/plan.h"
#include "core/plan/row_status.h"

namespace hyperserve {
namespace {

using ::testing::ElementsAre;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

HostTensor Doubles(Shape shape, const std::vector<double>& values) {
  HostTensor tensor = HostTensor::Zeros(Dtype::kF64, std::move(shape));
  std::copy(values.begin(), values.end(), tensor.as<double>().begin());
  return tensor;
}

Solution Of(HostTensor state, HostTensor outputs = {}) {
  const auto rows = static_cast<size_t>(state.shape[0]);
  return {.status = std::vector<RowStatus>(rows, RowStatus::kConverged),
          .state = std::move(state),
          .outputs = std::move(outputs)};
}

TEST(ErrorAgainst, IsByRow) {
  const PlanError error =
      ErrorAgainst(Of(Doubles({2, 2}, {3, 4, 0, 1})), Of(Doubles({2, 2}, {3, 5, 0, 2})));
  ASSERT_EQ(error.rows.size(), 2u);
  EXPECT_NEAR(error.rows[0], 0.2, 1e-15);
  EXPECT_NEAR(error.rows[1], 1.0, 1e-15);
  EXPECT_NEAR(error.mean, 0.6, 1e-15);
  EXPECT_EQ(error.max, error.rows[1]);
  EXPECT_EQ(error.agreement, 0);
}

TEST(ErrorAgainst, IsThatOfAllSavedStatesTogether) {
  Solution reference = Of(Doubles({1, 1}, {1})), solution = Of(Doubles({1, 1}, {1}));
  reference.saved = Doubles({1, 2, 1}, {3, 4});
  solution.saved = Doubles({1, 2, 1}, {3, 5});
  EXPECT_NEAR(ErrorAgainst(reference, solution).mean, 0.2, 1e-15);
}

TEST(ErrorAgainst, IsInfiniteWhereARowDidNotConvergeOrIsNoNumber) {
  const Solution reference = Of(Doubles({3, 1}, {1, 1, 1}));
  Solution solution = Of(Doubles({3, 1}, {1, 1, std::numeric_limits<double>::quiet_NaN()}));
  solution.status[1] = RowStatus::kStepLimit;
  const PlanError error = ErrorAgainst(reference, solution);
  EXPECT_THAT(error.rows, ElementsAre(0, kInfinity, kInfinity));
  EXPECT_EQ(error.mean, kInfinity);
  EXPECT_EQ(error.max, kInfinity);
}

TEST(ErrorAgainst, TakesAReferenceOfZero) {
  const Solution zero = Of(Doubles({1, 2}, {0, 0}));
  EXPECT_EQ(ErrorAgainst(zero, zero).mean, 0);
  EXPECT_GT(ErrorAgainst(zero, Of(Doubles({1, 2}, {0, 1}))).mean, 1e30);
}

TEST(ErrorAgainst, ComparesLabelsWhereThereAreOutputs) {
  const HostTensor state = Doubles({3, 1}, {1, 1, 1});
  const Solution reference = Of(state, Doubles({3, 2}, {5, 1, 7, 1, 0, 1}));
  const Solution solution = Of(state, Doubles({3, 2}, {1, 0, 0, 1, 0.4, 0.6}));
  EXPECT_THAT(LabelsOf(solution.outputs), ElementsAre(0, 1, 1));
  EXPECT_NEAR(ErrorAgainst(reference, solution).agreement, 2.0 / 3, 1e-15);
  EXPECT_NEAR(ShareOfEqual({0, 1, 1}, {0, 1, 0}), 2.0 / 3, 1e-15);
}

// Adds 1 to every state and counts its batches.
struct AddOne {
  std::vector<int64_t>* batches;

  absl::StatusOr<BatchResult> operator()(const BatchSpec&, const StepPlan& plan,
                                         const Segment& segment) const {
    batches->push_back(segment.rows);
    BatchResult result = {.state = HostTensor::CopyOf(segment.data)};
    for (float& value : result.state.as<float>()) value += 1;
    const int steps = std::get<FixedPlan>(plan).steps;
    result.status.assign(segment.rows, RowStatus::kConverged);
    result.nfe.assign(segment.rows, steps * static_cast<int32_t>(batches->size()));
    result.correction_evaluations.assign(segment.rows, 1);
    result.macs.assign(segment.rows, 10);
    return result;
  }
};

TEST(SolveRows, GoesBatchByBatchInOrder) {
  HostTensor rows = HostTensor::Zeros(Dtype::kF32, {5, 2});
  for (int i = 0; i < 10; ++i) rows.as<float>()[i] = static_cast<float>(i);
  std::vector<int64_t> batches;
  const auto solution =
      SolveRows({}, FixedPlan{.steps = 3}, {.rows = rows.shape[0], .data = rows.view()},
                /*batch_rows=*/2, AddOne{&batches});
  ASSERT_TRUE(solution.ok()) << solution.status();
  EXPECT_THAT(batches, ElementsAre(2, 2, 1));
  EXPECT_EQ(solution->status.size(), 5u);
  EXPECT_EQ(solution->state.shape, Shape({5, 2}));
  EXPECT_THAT(AsDoubles(solution->state.view()), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
  EXPECT_TRUE(solution->outputs.shape.empty());
  EXPECT_NEAR(solution->nfe, (2 * 3 + 2 * 6 + 1 * 9) / 5.0, 1e-12);
  EXPECT_NEAR(solution->correction_evaluations, 1, 1e-12);
  EXPECT_NEAR(solution->macs, 10, 1e-12);
}

TEST(SolveRows, EndsWithTheFirstFailure) {
  int calls = 0;
  const auto fails = [&](const BatchSpec&, const StepPlan&,
                         const Segment&) -> absl::StatusOr<BatchResult> {
    ++calls;
    return absl::CancelledError("enough");
  };
  const HostTensor rows = Doubles({4, 1}, {1, 2, 3, 4});
  const auto solution =
      SolveRows({}, FixedPlan{}, {.rows = 4, .data = rows.view()}, /*batch_rows=*/1, fails);
  EXPECT_EQ(solution.status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace hyperserve
