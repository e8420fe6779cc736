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
#include "core/io/safetensors.h"
#include "core/io/tensor.h"
#include "core/plan/plan.h"
#include "hyperserve/v1/hyperserve.pb.h"

namespace hyperserve {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

HostTensor Numbers(int64_t rows, int64_t columns) {
  HostTensor tensor = HostTensor::Zeros(Dtype::kF64, {rows, columns});
  for (int64_t i = 0; i < rows * columns; ++i) tensor.as<double>()[i] = static_cast<double>(i);
  return tensor;
}

TEST(ParseCsv, SkipsAHeaderAndKeepsAllDigits) {
  const auto rows = ParseCsv("x0,x1\n0.1, -2\n3e-300,4\n\n");
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ(rows->shape, Shape({2, 2}));
  EXPECT_THAT(rows->as<double>(), ElementsAre(0.1, -2, 3e-300, 4));
  EXPECT_EQ(ParseCsv("\xef\xbb\xbf"
                     "1,2\n3,4\n")
                ->shape,
            Shape({2, 2}))
      << "a byte-order mark";
}

TEST(ParseCsv, NamesTheLineThatIsWrong) {
  const auto ragged = ParseCsv("1,2\n3\n");
  EXPECT_THAT(std::string(ragged.status().message()),
              HasSubstr("line 2 has 1 number, the ones before have 2"));
  EXPECT_THAT(std::string(ParseCsv("1,x\n3,4\n").status().message()),
              HasSubstr("line 1 is not numbers"))
      << "a slip, not a header";
  const auto words = ParseCsv("1,2\n3,four\n");
  EXPECT_THAT(std::string(words.status().message()), HasSubstr("line 2 is not numbers"));
}

TEST(ReadRows, NamesThePathOnce) {
  const std::string folder = testing::TempDir();
  ASSERT_TRUE(WriteFileAtomically(folder + "bad.csv", "1,2\n3\n").ok());
  ASSERT_TRUE(WriteFileAtomically(folder + "bad.idx", "text").ok());
  ASSERT_TRUE(WriteFileAtomically(folder + "bad.safetensors", "text").ok());
  const HostTensor tensor = Numbers(2, 1);
  ASSERT_TRUE(
      WriteFileAtomically(
          folder + "other.safetensors",
          SerializeSafetensors(
              {{"y", {.dtype = tensor.dtype, .shape = tensor.shape, .bytes = tensor.bytes}}}))
          .ok());
  for (const char* name : {"missing", "missing.csv", "missing.safetensors", "bad.csv", "bad.idx",
                           "bad.safetensors", "other.safetensors"}) {
    const std::string words(ReadRows(folder + name, "z").status().message());
    const size_t first = words.find(name);
    EXPECT_NE(first, words.npos) << words;
    EXPECT_EQ(words.find(name, first + 1), words.npos) << words;
  }
  EXPECT_THAT(std::string(ReadRows(folder + "other.safetensors", "z").status().message()),
              HasSubstr("--tensor=z: no tensor 'z'; there are y"));
  EXPECT_THAT(std::string(ReadRows(folder + "bad.idx", "").status().message()),
              HasSubstr("read as IDX: the name ends in neither .csv"));
}

TEST(FitRows, ShapesCutsAndRefuses) {
  const auto rows = FitRows(Numbers(3, 4), "z.csv", {1, 2, 2}, 2);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ(rows->shape, Shape({2, 1, 2, 2}));
  EXPECT_EQ(rows->elements(), 8);
  const auto wrong = FitRows(Numbers(3, 4), "z.csv", {5}, 0);
  EXPECT_EQ(wrong.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(wrong.status().message()),
              HasSubstr("z.csv: a row has shape [4], the model takes [5]"));
}

TEST(FitRows, NothingIsRelabelled) {
  const auto fit = [](const Shape& row, const Shape& wanted) {
    Shape shape = row;
    shape.insert(shape.begin(), 2);
    return FitRows(HostTensor::Zeros(Dtype::kU8, shape), "images.safetensors", wanted, 0);
  };
  EXPECT_EQ(fit({28, 28}, {1, 28, 28})->shape, Shape({2, 1, 28, 28}));
  EXPECT_EQ(fit({1, 28, 28}, {28, 28})->shape, Shape({2, 28, 28}));
  const auto last = fit({4, 4, 3}, {3, 4, 4});
  EXPECT_THAT(std::string(last.status().message()), HasSubstr("channels last (NHWC)"));
  for (const Shape& row : {Shape{48}, Shape{4, 3, 4}, Shape{16, 3}}) {
    const auto other = fit(row, {3, 4, 4});
    EXPECT_EQ(other.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(other.status().message()), Not(HasSubstr("NHWC")));
  }
}

TEST(ForTier, ConvertsOnlyWhatMust) {
  EXPECT_EQ(ForTier(Numbers(1, 1), Tier::kDouble)->dtype, Dtype::kF64);
  const auto narrow = ForTier(Numbers(2, 2), Tier::kExact);
  EXPECT_THAT(narrow->as<float>(), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(ForTier(HostTensor::Zeros(Dtype::kU8, {1, 2}), Tier::kDouble)->dtype, Dtype::kU8);
  EXPECT_EQ(ForTier(*narrow, Tier::kDouble)->as<double>()[3], 3);
  EXPECT_FALSE(ForTier(HostTensor::Zeros(Dtype::kF16, {1, 2}), Tier::kExact).ok());
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
