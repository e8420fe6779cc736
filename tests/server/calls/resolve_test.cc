#include "server/calls/resolve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/model/net/model.h"
#include "core/model/repository/calibration.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "server/calls/ask.h"
#include "server/calls/limits.h"
#include "server/calls/task.h"
#include "server/registry/served_model.h"
#include "tests/server/calls/served_fixture.h"
#include "tests/testing/random_model.h"

namespace hyperserve {
namespace {

using testing::HasSubstr;

const CallLimits kLimits = LimitsWith({.steps_max = 100});

AskTerms Asking(const std::string& plan, int64_t generation = 0) {
  return {.plan = ParsePlan(plan), .generation = generation};
}

class ResolveTest : public testing::Test {
 protected:
  absl::StatusOr<ResolvedPlan> Resolve(const AskTerms& terms, const Task& task = {}) {
    return ResolvePlan(terms, *served_, task, kLimits);
  }
  void ExpectRefused(const AskTerms& terms, absl::StatusCode code, const std::string& words,
                     const Task& task = {}) {
    const absl::Status status = Resolve(terms, task).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(words));
  }

  // learned:1 and learned:4, of generation 3.
  void ServeLearned(std::vector<PlanCalibration> measured) {
    const std::vector<FixedPlan> plans = {{.method = {.method = Method::kEuler}, .steps = 1},
                                          {.method = {.method = Method::kRk4}, .steps = 1}};
    const auto bytes =
        fixture::LearnedFrom(plans, Coefficients::kMap, *served_->model, Direction::kForward);
    auto generation = std::make_shared<Generation>();
    generation->number = 3;
    generation->correction =
        *Hypersolver::FromBytes(bytes.hypersolver_json, bytes.weights, *served_->model);
    generation->calibration.plans = std::move(measured);
    served_->corrections.push_back(
        {.method = {.method = Method::kLearned}, .active = std::move(generation)});
  }

  std::shared_ptr<ServedModel> served_ = ServedTinyClassifier();
};

PlanCalibration Measured(const char* plan, double p99, double macs, double factor = 0) {
  PlanCalibration one;
  one.plan = *ParsePlan(plan);
  one.error_mean = p99 / 2;
  one.error_p99 = p99;
  one.macs = macs;
  if (factor > 0) one.bound = {.factor = factor, .rows = 50, .distances = {0, 1}};
  return one;
}

TEST_F(ResolveTest, DefaultIsTheCalibratedOneInTheTierAskedFor) {
  EXPECT_EQ(Resolve({})->text, "dopri5:1e-5");
  EXPECT_EQ(Resolve(Asking("default/double"))->text, "dopri5:1e-5/double");
  served_->calibration.default_plan = *ParsePlan("hyper_euler:2");
  const auto hypersolved = Resolve({});
  ASSERT_TRUE(hypersolved.ok()) << hypersolved.status();
  EXPECT_EQ(hypersolved->text, "hyper_euler:2");
  EXPECT_EQ(hypersolved->generation->number, 7);
  // Who asks for the density of a sample too gets the same sample.
  EXPECT_EQ(Resolve({}, {.log_density = true})->text, "hyper_euler:2");
}

TEST_F(ResolveTest, WhatIsSpelledWronglyIsRefusedAsItCame) {
  ExpectRefused(Asking("oiler:4"), absl::StatusCode::kInvalidArgument, "oiler");
}

TEST_F(ResolveTest, PinsActivePreviousAndNothingElse) {
  EXPECT_EQ(Resolve(Asking("hyper_euler:2"))->generation->number, 7);
  EXPECT_EQ(Resolve(Asking("hyper_euler:2", 7))->generation->number, 7);
  EXPECT_EQ(Resolve(Asking("hyper_euler:2", 5))->generation->number, 5);
  ExpectRefused(Asking("hyper_euler:2", 6), absl::StatusCode::kNotFound,
                "the active one is 7, the previous one 5");
  ExpectRefused(Asking("hyper_euler:2", -1), absl::StatusCode::kInvalidArgument, "-1");
  ExpectRefused(Asking("euler:2", 7), absl::StatusCode::kInvalidArgument, "classical");
  EXPECT_EQ(Resolve(Asking("euler:2"))->generation, nullptr);
}

TEST_F(ResolveTest, MissingAndRefusedCorrections) {
  ExpectRefused(Asking("hyper_heun:1"), absl::StatusCode::kNotFound, "it has those for euler");
  served_->corrections[0].active = nullptr;
  served_->corrections[0].problem = "generation 7 is of another base";
  ExpectRefused(Asking("hyper_euler:2"), absl::StatusCode::kFailedPrecondition, "another base");
}

TEST_F(ResolveTest, RangeOfTheCorrection) {
  ExpectRefused(Asking("hyper_euler:8"), absl::StatusCode::kFailedPrecondition, "step size");
  ExpectRefused(Asking("hyper_euler:2"), absl::StatusCode::kFailedPrecondition, "step size",
                {.span = {0, 0.1}});
  ExpectRefused(Asking("hyper_euler:2"), absl::StatusCode::kFailedPrecondition, "noise_to_data",
                {.direction = Direction::kNoiseToData});
}

TEST_F(ResolveTest, LearnedSolversAreServedAtTheirTablesOnly) {
  ExpectRefused(Asking("learned:4"), absl::StatusCode::kNotFound, "'learned'");
  ServeLearned({});
  EXPECT_EQ(Resolve(Asking("learned:4"))->generation->number, 3);
  EXPECT_EQ(Resolve(Asking("learned:4"))->label, "learned:4");
  EXPECT_EQ(Resolve(Asking("learned:4/double"))->label, "learned:other");
  ExpectRefused(Asking("learned:2"), absl::StatusCode::kFailedPrecondition, "it has 1, 4");
  ExpectRefused(Asking("learned:4"), absl::StatusCode::kFailedPrecondition, "span",
                {.span = {0, 0.5}});
  ExpectRefused(Asking("learned:4"), absl::StatusCode::kFailedPrecondition, "save_at",
                {.save_at = {0.5}});
  ExpectRefused(Asking("ab2:4"), absl::StatusCode::kFailedPrecondition, "save_at",
                {.save_at = {0.5}});
  EXPECT_EQ(Resolve(Asking("ab2:4"))->generation, nullptr);
}

TEST_F(ResolveTest, BoundsAreThoseOfMeasuredTablesWithAReadout) {
  ServeLearned({Measured("learned:1", 0.5, 10, 2), Measured("learned:4", 0.1, 40)});
  const Task task{.want_bound = true};
  EXPECT_EQ(Resolve(Asking("learned:1"), task)->bound_factor, 2);
  EXPECT_EQ(Resolve(Asking("learned:1"))->bound_factor, std::nullopt) << "not asked for";
  for (const char* plan : {"learned:4", "learned:1/double", "euler:4", "hyper_euler:2"}) {
    ExpectRefused(Asking(plan), absl::StatusCode::kFailedPrecondition,
                  "no bound of each row's error for what is asked; learned:1 have one", task);
  }
  ExpectRefused(Asking("euler:1"), absl::StatusCode::kFailedPrecondition, "no plan of this model",
                {.span = {0, 0.5}, .want_bound = true});
  // An automatic plan chooses among those with a bound.
  EXPECT_EQ(Resolve(Asking("auto:3e-1"))->text, "euler:4");
  EXPECT_EQ(Resolve(Asking("auto:3e-1"), task)->text, "learned:1");
  EXPECT_EQ(Resolve(Asking("auto:6e-2"))->text, "learned:4");
  ExpectRefused(Asking("auto:6e-2"), absl::StatusCode::kFailedPrecondition, "with an error bound",
                task);
}

TEST_F(ResolveTest, APlanPerRowHasItsOwnSpellingAndLaterPlans) {
  served_->calibration.plans = {Measured("euler:4", 0.9, 8), Measured("dopri5:1e-3", 0.01, 90)};
  ServeLearned({Measured("learned:1", 0.5, 10, 0.1), Measured("learned:4", 0.1, 40, 0.01)});
  const auto resolved = Resolve(Asking("auto:1e-2,per_row"));
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(resolved->text, "auto:1e-2,per_row");
  EXPECT_EQ(resolved->label, "auto:per_row");
  EXPECT_EQ(resolved->row_target, 0.01);
  EXPECT_EQ(resolved->error, std::nullopt);
  // learned:4 ends every row, learned:1 a tenth of them.
  EXPECT_EQ(PrintPlan(resolved->plan), "learned:4");
  EXPECT_EQ(resolved->bound_factor, 0.01);
  ASSERT_EQ(resolved->later.size(), 1u);
  EXPECT_EQ(resolved->later[0].text, "dopri5:1e-3");
  EXPECT_EQ(resolved->later[0].bound_factor, std::nullopt);
  EXPECT_EQ(Resolve(Asking("auto:1e-2,per_row", 3))->later.size(), 1u) << "a generation is pinned";
  served_->calibration.default_plan = *ParsePlan("auto:1e-2,per_row");
  EXPECT_EQ(Resolve({})->text, "auto:1e-2,per_row");
  ExpectRefused(Asking("auto:1e-4,per_row"), absl::StatusCode::kFailedPrecondition,
                "'dopri5:1e-3' has 0.01");
}

TEST_F(ResolveTest, Limits) {
  EXPECT_TRUE(Resolve(Asking("euler:100")).ok());
  ExpectRefused(Asking("euler:101"), absl::StatusCode::kInvalidArgument, "steps_max = 100");
  AskTerms terms = Asking("dopri5:1e-5");
  EXPECT_EQ(Resolve(terms)->max_steps, 100);
  terms.max_steps = 20;
  EXPECT_EQ(Resolve(terms)->max_steps, 20);
  terms.max_steps = 101;
  ExpectRefused(terms, absl::StatusCode::kInvalidArgument, "max_steps: 101");
  terms.max_steps = -1;
  ExpectRefused(terms, absl::StatusCode::kInvalidArgument, "max_steps: -1");
}

TEST_F(ResolveTest, FixedPlansShareBatchesWhateverTheirStepLimit) {
  AskTerms terms = Asking("euler:2");
  terms.max_steps = 20;
  EXPECT_EQ(Resolve(terms)->max_steps, 100);
}

TEST_F(ResolveTest, ATierRefusesTolerancesThatItCannotMeet) {
  using absl::StatusCode::kInvalidArgument;
  ExpectRefused(Asking("dopri5:1e-9"), kInvalidArgument,
                "smallest sensible one is 'dopri5:1e-7', or 'dopri5:1e-9/double'");
  ExpectRefused(Asking("tsit5:1e-300"), kInvalidArgument, "or 'tsit5:1e-13/double'");
  ExpectRefused(Asking("dopri5:1e-14/double"), kInvalidArgument,
                "smallest sensible one is 'dopri5:1e-13/double'");
  for (const char* plan : {"dopri5:1e-7", "dopri5:1e-12/double", "dopri5:1e-12,1e-6"}) {
    EXPECT_TRUE(Resolve(Asking(plan)).ok()) << plan;
  }
}

TEST_F(ResolveTest, AutomaticPlansNameWhatRunsAndItsError) {
  const auto chosen = Resolve(Asking("auto:1e-1"), {.span = served_->model->spec().span});
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(chosen->text, "euler:4");
  EXPECT_EQ(chosen->error, 0.1);
  EXPECT_THAT(chosen->reason, HasSubstr("auto:1e-1"));
  EXPECT_EQ(Resolve(Asking("euler:3"))->error, std::nullopt);
  ExpectRefused(Asking("auto:1e-2"), absl::StatusCode::kFailedPrecondition, "euler:4",
                {.span = served_->model->spec().span});
}

TEST_F(ResolveTest, LabelsAreABoundedSet) {
  EXPECT_EQ(Resolve(Asking("euler:4"))->label, "euler:4");              // calibrated
  EXPECT_EQ(Resolve(Asking("dopri5:1e-5"))->label, "dopri5:1e-5");      // the default
  EXPECT_EQ(Resolve(Asking("hyper_euler:2"))->label, "hyper_euler:2");  // claimed
  EXPECT_EQ(Resolve(Asking("euler:5"))->label, "euler:other");
  EXPECT_EQ(Resolve(Asking("hyper_euler:3"))->label, "hyper_euler:other");
  EXPECT_EQ(Resolve(Asking("hyper_euler:2/double"))->label, "hyper_euler:other");
  EXPECT_EQ(Resolve(Asking("alpha(0.75):3"))->label, "alpha:other");
  EXPECT_EQ(Resolve(Asking("euler:4@cosine"))->label, "euler:other");
  EXPECT_EQ(Resolve(Asking("hyper_euler:2@[0,0.4,1]"))->label, "hyper_euler:other");
  EXPECT_EQ(Resolve(Asking("dopri5:2e-5"))->label, "dopri5:other");
}

}  // namespace
}  // namespace hyperserve
