#include "client/frame/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <mutex>

#include "client/frame/command.h"
#include "client/frame/failure.h"
#include "client/frame/json_writer.h"
#include "client/frame/solve_ledger.h"
#include "core/io/file.h"
#include "core/io/tensor.h"
#include "core/plan/plan.h"
#include "hyperserve/v1/hyperserve.pb.h"

namespace hyperserve {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

HostTensor Numbers(int64_t rows, int64_t columns) {
  HostTensor tensor = HostTensor::Zeros(Dtype::kF64, {rows, columns});
  for (int64_t i = 0; i < rows * columns; ++i) tensor.as<double>()[i] = static_cast<double>(i);
  return tensor;
}

TEST(ReadInput, FailuresAreOfTheFile) {
  const std::string path = testing::TempDir() + "bad.csv";
  ASSERT_TRUE(WriteFileAtomically(path, "1,2\n3\n").ok());
  EXPECT_THAT(ExplainFailure(ReadInput(path, "").status()),
              HasSubstr("correct the file or name another one"));
}

TEST(ForTier, ConvertsOnlyWhatMust) {
  EXPECT_EQ(ForTier(Numbers(1, 1), Tier::kDouble).dtype, Dtype::kF64);
  const HostTensor narrow = ForTier(Numbers(2, 2), Tier::kExact);
  EXPECT_THAT(narrow.as<float>(), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(ForTier(HostTensor::Zeros(Dtype::kU8, {1, 2}), Tier::kDouble).dtype, Dtype::kU8);
  EXPECT_EQ(ForTier(narrow, Tier::kDouble).as<double>()[3], 3);
  const HostTensor half = ConvertedTo(narrow.view(), Dtype::kF16);
  EXPECT_THAT(ForTier(half, Tier::kExact).as<float>(), ElementsAre(0, 1, 2, 3));
}

TEST(Slices, AreJoinRowsInverse) {
  const HostTensor whole = Numbers(7, 2);
  std::vector<HostTensor> parts(3);
  ASSERT_TRUE(ForEachSlice(7, 3, 2, [&](const Slice& slice) {
                const TensorView view = RowsOf(whole.view(), slice.begin, slice.rows());
                EXPECT_EQ(view.shape, Shape({slice.rows(), 2}));
                parts[slice.index] = HostTensor::CopyOf(view);
                return absl::OkStatus();
              }).ok());
  EXPECT_EQ(JoinRows(parts).shape, whole.shape);
  EXPECT_EQ(JoinRows(parts).bytes, whole.bytes);
}

TEST(ForEachSlice, StopsAtTheFirstFailure) {
  std::atomic<int> calls = 0;
  const absl::Status status = ForEachSlice(1000, 1, 2, [&](const Slice& slice) -> absl::Status {
    ++calls;
    if (slice.index == 3) return absl::AbortedError("three");
    return absl::OkStatus();
  });
  EXPECT_EQ(status, absl::AbortedError("three"));
  EXPECT_LT(calls, 1000);
}

TEST(ParseNumbers, ListsOrUsageError) {
  EXPECT_THAT(*ParseNumbers("span", "0.25,1"), ElementsAre(0.25, 1));
  EXPECT_TRUE(ParseNumbers("span", "")->empty());
  EXPECT_TRUE(IsUsageError(ParseNumbers("span", "0;1").status()));
}

TEST(SolveLedger, PutsRepliesTogether) {
  v1::SolveInfo info;
  info.set_plan("dopri5:1e-5");
  info.set_solve_seconds(1.0);
  info.set_bucket(4);
  info.add_nfe(10);
  info.add_macs(100);
  info.add_row_status(v1::ROW_STATUS_CONVERGED);
  SolveLedger ledger;
  ledger.Add(info, 3);
  info.mutable_nfe()->Add(30);
  info.mutable_row_status()->Add(v1::ROW_STATUS_STEP_LIMIT);
  info.set_solve_seconds(4.0);
  ledger.Add(info, 2);
  EXPECT_EQ(ledger.rows(), 5);
  EXPECT_EQ(ledger.failed_rows(), 1);
  EXPECT_EQ(ledger.status_name(4), "step_limit");
  EXPECT_DOUBLE_EQ(ledger.nfe_mean(), (4 * 10 + 30) / 5.0);
  EXPECT_DOUBLE_EQ(ledger.macs_mean(), 100);
  EXPECT_DOUBLE_EQ(ledger.solve_seconds_per_row_p50(), 1.0 / 4);
  EXPECT_THAT(ledger.Summary(), HasSubstr("5 rows of , plan dopri5:1e-5"));
  EXPECT_THAT(ledger.Summary(), HasSubstr("; 1 row failed: step_limit"));
  JsonWriter json;
  json.BeginObject();
  ledger.WriteFields(json);
  const std::string text = json.EndObject().Take();
  EXPECT_THAT(text, HasSubstr(R"("nfe":[10,10,10,10,30])"));
  EXPECT_THAT(text, HasSubstr(R"("macs":100)"));
  EXPECT_THAT(text, HasSubstr(R"("correction_evaluations":null)"));
  EXPECT_FALSE(ledger.has_bounds());
  EXPECT_THAT(text, Not(HasSubstr("bound")));
}

TEST(SolveLedger, BoundsAndTheRowsOfEachPlan) {
  v1::SolveInfo info;
  for (const double bound : {0.5, 0.25, std::nan("")}) info.add_error_bound(bound);
  v1::PlanRows& first = *info.add_plan_rows();
  first.set_plan("learned:2");
  first.set_rows(3);
  first.set_rows_ended(2);
  info.add_plan_rows()->set_plan("dopri5:1e-3");
  info.mutable_plan_rows(1)->set_rows(1);
  info.mutable_plan_rows(1)->set_rows_ended(1);
  SolveLedger ledger;
  ledger.Add(info, 3);
  ledger.Add(info, 3);
  EXPECT_EQ(ledger.error_bound(1), 0.25);
  EXPECT_THAT(ledger.Summary(), HasSubstr("4 rows with a bound, median 0."));
  EXPECT_THAT(ledger.Summary(), HasSubstr("learned:2 ended 4 of 6; dopri5:1e-3 ended 2 of 2"));
  JsonWriter json;
  json.BeginObject();
  ledger.WriteFields(json);
  const std::string text = json.EndObject().Take();
  EXPECT_THAT(text, HasSubstr(R"("error_bound":[0.5,0.25,null,0.5,0.25,null])"));
  EXPECT_THAT(text, HasSubstr(R"({"plan":"learned:2","rows":6,"rows_ended":4})"));
}

}  // namespace
}  // namespace hyperserve
