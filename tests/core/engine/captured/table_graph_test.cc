// Captured tables on every CUDA device: bit for bit those of the readable engine in the same
// bucket. Skipped where there is no CUDA device; table_run_test has what needs none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "core/engine/batch_spec.h"
#include "core/engine/device_runtime.h"
#include "core/io/tensor.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "core/plan/step_control.h"
#include "tests/core/engine/captured/table_fixture.h"
#include "tests/core/engine/engine_fixture.h"
#include "tests/testing/planned_solve.h"
#include "tests/testing/random_model.h"

namespace hyperserve {
namespace {

using testing::HasSubstr;

bool Never() { return false; }

class TableGraphTest : public EngineTest {
 protected:
  void SetUp() override {
    if (on_cpu()) GTEST_SKIP() << "captured tables want a CUDA device";
  }

  std::vector<std::string> Solved(const BatchSpec& spec, const std::vector<TableRowsAsked>& asked,
                                  const TensorView& condition, const std::string& engine) {
    const auto started = runtime_->StartRun(spec, 16).value();
    EXPECT_EQ(started.choice.engine, engine) << started.choice.why;
    return SolvedBy(*started.run, asked, condition);
  }

  void WarmTables(const BatchSpec& spec) {
    const std::vector<int> all =
        spec.correction == nullptr ? std::vector<int>{4} : spec.correction->spec().steps;
    for (const int steps : all) {
      ASSERT_TRUE(runtime_->WarmUp(spec, FixedSteps{.steps = steps}, 16, Never).ok());
    }
  }

  // All segments in one run of 16 rows, before and after the tables were captured.
  void ExpectSameBits(const PlannedSolve& solve, const std::vector<TableRowsAsked>& asked) {
    const BatchSpec spec = SpecOf(solve, asked[0].rows.dtype);
    const std::vector<std::string> one_by_one = Solved(spec, asked, solve.condition, "readable");
    WarmTables(spec);
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(Solved(spec, asked, solve.condition, "graph") == one_by_one) << i;
    }
  }

  const std::shared_ptr<const Model> flow_ = fixture::RandomModel(fixture::FlowSpec(), 1);
};

TEST_P(TableGraphTest, Flows) {
  for (const Coefficients kind :
       {Coefficients::kScalar, Coefficients::kChannel, Coefficients::kMap}) {
    for (const Tier tier : {Tier::kExact, Tier::kDouble}) {
      ExpectSameBits(ByTable(flow_, RandomTables(*flow_, kind, 2), tier),
                     {{NormalRows(3, {2}, 3), 3},
                      {NormalRows(1, {2}, 4), 1},
                      {NormalRows(2, {2}, 5), 3},
                      {NormalRows(2, {2}, 6), 0}});
    }
  }
}

TEST_P(TableGraphTest, AClassicalTable) {
  ExpectSameBits({.model = flow_,
                  .plan = Fixed(Method::kAb2, 4),
                  .entry = Entry::kState,
                  .direction = Direction::kDataToNoise},
                 {{NormalRows(8, {2}, 3), 4}});
}

TEST_P(TableGraphTest, Conditions) {
  const auto model = fixture::RandomModel(fixture::ConditionalFlowSpec(), 1);
  PlannedSolve solve = ByTable(model, RandomTables(*model, Coefficients::kMap, 2));
  const HostTensor condition = NormalRows(3, {3}, 7);
  solve.condition = View(condition);
  ExpectSameBits(solve, {{NormalRows(3, {2}, 3), 3}, {NormalRows(3, {2}, 4), 1}});
}

TEST_P(TableGraphTest, Images) {
  const auto model = fixture::RandomModel(fixture::ImageSpec(), 1);
  HostTensor bytes = HostTensor::Zeros(Dtype::kU8, {3, 1, 12, 12});
  for (size_t i = 0; i < bytes.bytes.size(); ++i) bytes.bytes[i] = std::byte(i * 37 % 256);
  for (const Coefficients kind : {Coefficients::kChannel, Coefficients::kMap}) {
    ExpectSameBits(ByTable(model, RandomTables(*model, kind, 2)), {{bytes, 1}, {bytes, 3}});
  }
}

TEST_P(TableGraphTest, RowsThatFail) {
  HostTensor rows = NormalRows(5, {2}, 3);
  rows.as<double>()[2] = 1.7e308;
  rows.as<double>()[5] = std::numeric_limits<double>::infinity();
  for (const Tier tier : {Tier::kExact, Tier::kDouble}) {
    ExpectSameBits(ByTable(flow_, RandomTables(*flow_, Coefficients::kMap, 2), tier),
                   {{rows, 3}, {NormalRows(3, {2}, 4), 1}});
  }
}

// Steps and tables share the lanes: two runs are under way, and the third makes its own.
TEST_P(TableGraphTest, WhoFindsNoLaneIsSolvedOneByOne) {
  const BatchSpec spec = SpecOf(ByTable(flow_, RandomTables(*flow_, Coefficients::kMap, 2)));
  const PlannedSolve steps{.model = flow_,
                           .plan = Fixed(Method::kRk4, 2),
                           .entry = Entry::kState,
                           .direction = Direction::kDataToNoise};
  WarmTables(spec);
  ASSERT_TRUE(runtime_->WarmUp(SpecOf(steps), ControlOf(steps), 8, Never).ok());
  const TableRowsAsked asked{NormalRows(8, {2}, 3), 3};
  const auto first = runtime_->StartRun(spec, 16).value();
  const auto second = runtime_->StartRun(SpecOf(steps), 8).value();
  const auto third = runtime_->StartRun(spec, 16).value();
  EXPECT_EQ(first.choice.engine, "graph");
  EXPECT_EQ(second.choice.engine, "graph");
  EXPECT_EQ(third.choice.engine, "readable");
  EXPECT_THAT(third.choice.why, HasSubstr("2 runs use captured work now"));
  EXPECT_TRUE(SolvedBy(*first.run, {asked}) == SolvedBy(*third.run, {asked}));
}

TEST_P(TableGraphTest, TablesAreThoseOfAGeneration) {
  for (uint64_t seed = 10; seed < 13; ++seed) {
    ExpectSameBits(ByTable(flow_, RandomTables(*flow_, Coefficients::kMap, seed)),
                   {{NormalRows(3, {2}, 3), 3}});
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, TableGraphTest, testing::ValuesIn(DeviceNames()), DeviceTestName);

}  // namespace
}  // namespace hyperserve
