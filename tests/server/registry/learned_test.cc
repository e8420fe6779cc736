// A learned solver's life: published, gated against classical plans of its cost, swapped, rolled
// back, served again after a restart. Its tables hold classical plans, so their errors are known.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/model/net/model.h"
#include "core/model/repository/generation_files.h"
#include "core/model/repository/repository.h"
#include "core/model/repository/verdicts.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "server/registry/check.h"
#include "server/registry/gate_decision.h"
#include "server/registry/served_model.h"
#include "tests/server/registry/registry_fixture.h"
#include "tests/testing/random_model.h"

namespace hyperserve {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

FixedPlan Plan(Method method, int steps) { return {.method = {.method = method}, .steps = steps}; }

class LearnedRegistryTest : public RegistryFixture {
 protected:
  absl::StatusOr<PublishOutcome> PublishTables(const std::vector<FixedPlan>& plans,
                                               Coefficients kind = Coefficients::kChannel) {
    const auto model = *Model::FromBytes(flow_.model_json, flow_.weights);
    const auto bytes = fixture::LearnedFrom(plans, kind, *model, Direction::kNoiseToData);
    GenerationFiles files = Scaled(1.0);  // for its probe
    files["hypersolver.json"] = bytes.hypersolver_json;
    files["weights.safetensors"] = bytes.weights;
    return Publish(std::move(files), std::nullopt, "learned");
  }
  void ExpectRefused(const std::vector<FixedPlan>& plans, const std::string& reason) {
    const int64_t active = ActiveTables();
    const auto outcome = PublishTables(plans);
    EXPECT_EQ(outcome.status().code(), absl::StatusCode::kFailedPrecondition) << outcome.status();
    EXPECT_THAT(std::string(outcome.status().message()), HasSubstr(reason));
    EXPECT_EQ(ActiveTables(), active);
  }
  int64_t ActiveTables() const {
    const auto pin = registry_->Pin("tiny_flow");
    const CorrectionState* state = (*pin)->Find({.method = Method::kLearned});
    return state == nullptr || state->active == nullptr ? 0 : state->active->number;
  }
};

TEST_F(LearnedRegistryTest, LivesAsAnyGenerationDoes) {
  Open();
  const std::vector<FixedPlan> best = {Plan(Method::kMidpoint, 1), Plan(Method::kRk4, 1)};
  const auto first = PublishTables(best);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->generation, 1);
  ASSERT_EQ(first->gate.size(), 2u);
  EXPECT_EQ(first->gate[1].steps, 4);
  const std::string folder = HypersolverFolder(repository() + "/tiny_flow", {Method::kLearned});
  EXPECT_THAT(folder, HasSubstr("hypersolvers/learned"));
  EXPECT_THAT(ReadVerdicts(folder)->at(1).reason, AllOf(HasSubstr("n = 2"), HasSubstr("rk4")));
  EXPECT_THAT(CheckModelFolder(repository()), IsEmpty());

  // Worse than a classical plan of its cost, at one of its n.
  ExpectRefused({Plan(Method::kMidpoint, 1), Plan(Method::kEuler, 4)}, "which costs no more");
  // Without a table that is served.
  ExpectRefused({Plan(Method::kRk4, 1)}, "learned:2 is served");
  EXPECT_EQ(ActiveTables(), 1);

  const auto more = PublishTables({Plan(Method::kMidpoint, 1), Plan(Method::kRk3, 1), best[1]});
  ASSERT_TRUE(more.ok()) << more.status();
  EXPECT_EQ(ActiveTables(), 4);
  const auto back = Rollback(0, "learned");
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(ActiveTables(), 1);
  Open();  // a restart
  EXPECT_EQ(ActiveTables(), 1);
}

// A map costs half an evaluation of this field, so a classical plan may make more of them.
TEST_F(LearnedRegistryTest, TheGateCountsWhatMapsCost) {
  Open();
  const auto outcome = PublishTables({Plan(Method::kRk4, 1)}, Coefficients::kMap);
  EXPECT_THAT(std::string(outcome.status().message()), HasSubstr("more than rk4:2"));
}

TEST_F(LearnedRegistryTest, FilesThatDoNotFitAreRefusedInWords) {
  Open();
  GenerationFiles files = Scaled(1.0);
  const auto refused = Publish(files, std::nullopt, "learned");
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("published as learned"));
  EXPECT_EQ(ActiveTables(), 0);
}

}  // namespace
}  // namespace hyperserve
