#include "server/calls/flow.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <span>

#include "core/engine/batch_spec.h"
#include "core/io/tensor.h"
#include "core/model/spec/spec.h"
#include "core/plan/condition_knots.h"
#include "core/plan/plan.h"
#include "core/plan/row_status.h"
#include "server/batching/work.h"
#include "server/calls/limits.h"
#include "server/calls/prepare.h"
#include "server/calls/rows.h"
#include "server/registry/served_model.h"
#include "tests/server/calls/served_fixture.h"
#include "tests/testing/random_model.h"

namespace hyperserve {
namespace {

using testing::HasSubstr;

const CallLimits kLimits = LimitsWith({.request_rows_max = 1000, .chunk_rows_default = 64});

template <class T>
void ExpectRefused(const absl::StatusOr<T>& result, const std::string& words) {
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument) << result.status();
  EXPECT_THAT(std::string(result.status().message()), HasSubstr(words));
}

SampleAsk Samples(int64_t rows) { return {.rows = rows, .seed = 11, .first_row = 100}; }

TEST(PrepareSample, IsNoiseByRowNumber) {
  SampleAsk ask = Samples(5);
  ask.log_density = true;
  const auto prepared = Prepare(ask, ServedTinyFlow(), kLimits);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  const Work& work = prepared->work;
  EXPECT_EQ(work.spec.entry, Entry::kNoise);
  EXPECT_EQ(work.spec.direction, Direction::kNoiseToData);
  EXPECT_EQ(work.spec.log_density, LogDensity::kDivergence);
  EXPECT_TRUE(work.spec.want_state);
  EXPECT_EQ(work.segment.rows, 5);
  EXPECT_EQ(work.segment.seed, 11u);
  EXPECT_EQ(work.segment.first_row, 100u);
  EXPECT_EQ(work.bytes, 5 * (2 * 4 + 8));
}

TEST(PrepareSample, TheDensityOfACorrectedPlanIsThatOfItsStepMap) {
  SampleAsk ask = Samples(5);
  ask.terms.plan = ParsePlan("hyper_heun:2");
  ask.log_density = true;
  const auto prepared = Prepare(ask, ServedTinyFlow(), kLimits);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_EQ(prepared->work.spec.log_density, LogDensity::kStepMap);
}

TEST(PrepareSample, Refusals) {
  const auto served = ServedTinyFlow();
  ExpectRefused(Prepare(Samples(0), served, kLimits), "rows: 0");
  ExpectRefused(Prepare(Samples(-3), served, kLimits), "rows: -3");
  ExpectRefused(Prepare(Samples(1001), served, kLimits), "request_rows_max = 1000");
  ExpectRefused(Prepare(Samples(1), ServedTinyClassifier(), kLimits), "needs a flow");
  SampleAsk last = Samples(1);
  last.first_row = std::numeric_limits<uint64_t>::max();
  EXPECT_TRUE(Prepare(last, served, kLimits).ok());
  last.rows = 2;
  ExpectRefused(Prepare(last, served, kLimits), "2^64 - 1");
  CallLimits limits = kLimits;
  limits.reply_bytes_default = 5000;
  ExpectRefused(Prepare(Samples(1000), served, limits), "call SampleStream");
}

// A flow in two dimensions with a condition of three numbers.
std::shared_ptr<const ServedModel> ServedConditionalFlow() {
  auto served = std::make_shared<ServedModel>();
  served->name = "conditional";
  served->model = fixture::RandomModel(fixture::ConditionalFlowSpec(), 1);
  return served;
}

TensorView Conditions(const std::vector<float>& numbers) {
  return {.dtype = Dtype::kF32,
          .shape = {static_cast<int64_t>(numbers.size()) / 3, 3},
          .bytes = std::as_bytes(std::span(numbers))};
}

TEST(PrepareCondition, OneForEachRowOrOneForAll) {
  const auto served = ServedConditionalFlow();
  SampleAsk ask = Samples(4);
  const std::vector<float> each = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, one = {5, 6, 7};
  ask.terms.condition = Conditions(each);
  const auto prepared = Prepare(ask, served, kLimits);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_EQ(AsDoubles(prepared->work.segment.condition),
            std::vector<double>(each.begin(), each.end()));
  EXPECT_EQ(prepared->work.bytes, 4 * 2 * 4 + 4 * 3 * 4);  // samples, conditions
  ask.terms.condition = Conditions(one);
  EXPECT_EQ(Prepare(ask, served, kLimits)->work.segment.condition.shape, Shape({1, 3}));
  EXPECT_EQ(Prepare(ask, served, kLimits)->work.bytes, 4 * 2 * 4 + 3 * 4);
  const std::vector<float> points(8, 0.5f);
  LogProbAsk density{.inputs = TensorView{Dtype::kF32, {4, 2}, std::as_bytes(std::span(points))}};
  density.terms.condition = Conditions(each);
  EXPECT_EQ(Prepare(density, served, kLimits)->work.segment.condition.shape, Shape({4, 3}));
}

TEST(PrepareCondition, Refusals) {
  const auto served = ServedConditionalFlow();
  SampleAsk ask = Samples(4);
  ExpectRefused(Prepare(ask, served, kLimits), "condition: model 'conditional' needs one of [3]");
  const std::vector<float> two(6, 1.0f), bad = {0, std::nanf(""), 0}, narrow = {1, 2};
  ask.terms.condition = Conditions(two);
  ExpectRefused(Prepare(ask, served, kLimits), "condition: 2 conditions for 4 rows; send one for");
  ask.terms.condition = Conditions(bad);
  ExpectRefused(Prepare(ask, served, kLimits), "condition: row 0, element 1 is nan; finite");
  ask.terms.condition = TensorView{Dtype::kF32, {1, 2}, std::as_bytes(std::span(narrow))};
  ExpectRefused(Prepare(ask, served, kLimits), "condition: shape [1, 2] found, [rows, 3] wanted");
  const std::vector<double> wide = {1, 2, 3};
  ask.terms.condition = TensorView{Dtype::kF64, {1, 3}, std::as_bytes(std::span(wide))};
  ExpectRefused(Prepare(ask, served, kLimits), "condition: dtype F64 is not taken; send F32");
  ask.terms.plan = ParsePlan("euler:4/double");
  EXPECT_TRUE(Prepare(ask, served, kLimits).ok());
  ask.terms.condition = Conditions(two);
  ExpectRefused(Prepare(ask, ServedTinyFlow(), kLimits), "condition: model 'tiny_flow' has none");
}

TEST(PrepareCondition, AStreamSendsEachChunkItsOwn) {
  std::vector<float> each(3 * 10);
  for (size_t i = 0; i < each.size(); ++i) each[i] = static_cast<float>(i);
  StreamAsk ask{.sample = Samples(10), .chunk_rows = 4};
  ask.sample.terms.condition = Conditions(each);
  const auto stream = PrepareStream(ask, ServedConditionalFlow(), kLimits);
  ASSERT_TRUE(stream.ok()) << stream.status();
  const Work chunk = ChunkOf(*stream, 4, 4).work;
  EXPECT_EQ(chunk.segment.condition.shape, Shape({4, 3}));
  EXPECT_EQ(AsDoubles(chunk.segment.condition).front(), 12.0);
  EXPECT_EQ(chunk.bytes, 4 * (2 * 4 + 3 * 4));
  const std::vector<float> one = {5, 6, 7};
  ask.sample.terms.condition = Conditions(one);
  const auto shared = PrepareStream(ask, ServedConditionalFlow(), kLimits);
  EXPECT_EQ(ChunkOf(*shared, 4, 4).work.segment.condition.shape, Shape({1, 3}));
}

class PrepareGuidance : public testing::Test {
 protected:
  PrepareGuidance() {
    auto served = std::make_shared<ServedModel>();
    served->name = "guided";
    served->model = fixture::RandomModel(fixture::GuidedFlowSpec(), 1);
    served_ = std::move(served);
    ask_.terms.condition = Conditions(condition_);
    ask_.terms.plan = ParsePlan("heun:2");
  }

  // In the shape given: [rows], or [rows, steps].
  void Guide(std::vector<float> weights, Shape shape) {
    weights_ = std::move(weights);
    ask_.terms.guidance =
        TensorView{Dtype::kF32, std::move(shape), std::as_bytes(std::span(weights_))};
  }
  absl::StatusOr<Prepared> Try() const { return Prepare(ask_, served_, kLimits); }
  Work Do() const {
    const auto prepared = Try();
    EXPECT_TRUE(prepared.ok()) << prepared.status();
    return prepared.ok() ? prepared->work : Work();
  }

  std::shared_ptr<const ServedModel> served_;
  std::vector<float> condition_ = {5, 6, 7}, weights_;
  SampleAsk ask_ = Samples(4);
};

TEST_F(PrepareGuidance, AWeightForEachRowEachStepOrAll) {
  const int64_t macs = Do().macs;
  EXPECT_EQ(Do().spec.guidance, 0);
  Guide({2}, {1});
  EXPECT_EQ(Do().spec.guidance, 1);
  EXPECT_EQ(Do().segment.guidance.shape, Shape({1, 1}));
  EXPECT_EQ(Do().macs, 2 * macs);
  EXPECT_EQ(Do().bytes, 4 * 2 * 4 + 3 * 4 + 8);  // samples, condition, weight
  Guide({1, 2, 0, 3}, {4});
  EXPECT_EQ(AsDoubles(Do().segment.guidance), std::vector<double>({1, 2, 0, 3}));
  EXPECT_EQ(Do().macs, 3 * macs / 2);
  EXPECT_EQ(Do().evaluations, 4);
  Guide({1, 1, 1, 1, 1, 2, 1, 1}, {4, 2});
  EXPECT_EQ(Do().spec.guidance, 2);
  EXPECT_EQ(Do().macs, 9 * macs / 8);
}

TEST_F(PrepareGuidance, WeightsOfOneAreNone) {
  const int64_t macs = Do().macs;
  Guide({1, 1, 1, 1}, {4});
  EXPECT_EQ(Do().spec.guidance, 0);
  EXPECT_TRUE(Do().segment.guidance.shape.empty());
  EXPECT_EQ(Do().macs, macs);
}

TEST_F(PrepareGuidance, WithoutAConditionTheModelsNoneIsUsed) {
  ask_.terms.condition.reset();
  EXPECT_EQ(AsDoubles(Do().segment.condition), std::vector<double>({0.5, -1, 2}));
  EXPECT_EQ(Do().segment.condition.shape, Shape({1, 3}));
  ask_.terms.plan = ParsePlan("heun:2/double");
  EXPECT_EQ(Do().segment.condition.dtype, Dtype::kF64);
  Guide({2}, {1});
  ExpectRefused(Try(), "guidance: it weighs a condition, and the request has none");
}

TEST_F(PrepareGuidance, Refusals) {
  Guide({2, 3}, {2});
  ExpectRefused(Try(), "guidance: 2 weights for 4 rows; send one for each row");
  Guide({std::nanf("")}, {1});
  ExpectRefused(Try(), "guidance: row 0, element 0 is nan");
  Guide({2, 3, 4}, {1, 3});
  ExpectRefused(Try(), "guidance: 3 weights a row for plan 'heun:2'; send one, or one for each");
  for (const char* plan : {"dopri5:1e-3", "ab2:3"}) {
    ask_.terms.plan = ParsePlan(plan);
    ExpectRefused(Try(), "guidance: 3 weights a row for plan");
  }
  Guide({2}, {1, 1, 1});
  ExpectRefused(Try(), "guidance: shape [1, 1, 1] found, [rows] wanted, or [rows, steps] with");
  Guide({2}, {});
  ExpectRefused(Try(), "guidance: shape [] found, [rows] wanted");
  ask_.terms.plan = ParsePlan("auto:1e-2");
  Guide({2}, {1});
  const absl::Status none_measured = Try().status();
  EXPECT_EQ(none_measured.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(none_measured.message()),
              HasSubstr("none was measured for what is asked"));
  ask_.terms.plan = ParsePlan("hyper_heun:2");
  const absl::Status hypersolved = Try().status();
  EXPECT_EQ(hypersolved.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(hypersolved.message()),
              HasSubstr("'hyper_heun:2' takes no guidance: what was learned"));
  served_ = ServedConditionalFlow();
  ExpectRefused(Try(), "guidance: model 'conditional' does not say what stands for no condition");
}

TEST_F(PrepareGuidance, AStreamSendsEachChunkItsOwn) {
  StreamAsk ask{.sample = ask_, .chunk_rows = 2};
  weights_ = {1, 2, 3, 4};
  ask.sample.terms.guidance = TensorView{Dtype::kF32, {4}, std::as_bytes(std::span(weights_))};
  const auto stream = PrepareStream(ask, served_, kLimits);
  ASSERT_TRUE(stream.ok()) << stream.status();
  const Work chunk = ChunkOf(*stream, 2, 2).work;
  EXPECT_EQ(AsDoubles(chunk.segment.guidance), std::vector<double>({3, 4}));
  const auto plain = PrepareStream({.sample = ask_, .chunk_rows = 2}, served_, kLimits);
  EXPECT_EQ(4 * chunk.macs, 7 * ChunkOf(*plain, 2, 2).work.macs);  // by the mean of the stream
}

TEST_F(PrepareGuidance, AConditionOnKnots) {
  const int64_t macs = Do().macs;
  std::vector<float> values(2 * 4 * 3);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  ask_.rows = 2;
  ask_.terms.condition = TensorView{Dtype::kF32, {2, 4, 3}, std::as_bytes(std::span(values))};
  ask_.terms.knots = ConditionKnots{.depths = {0, 0.3, 0.6, 1}};
  EXPECT_EQ(Do().spec.knots.depths, std::vector<double>({0, 0.3, 0.6, 1}));
  EXPECT_EQ(Do().segment.condition.shape, Shape({2, 4, 3}));
  EXPECT_EQ(Do().macs, (2 + 4) * macs / 2 / 2);  // of half the rows; each knot cuts a step
  const auto stream = PrepareStream({.sample = ask_, .chunk_rows = 1}, served_, kLimits);
  ASSERT_TRUE(stream.ok()) << stream.status();
  EXPECT_EQ(AsDoubles(ChunkOf(*stream, 1, 1).work.segment.condition).front(), 12);
  ask_.terms.knots = ConditionKnots{.depths = {0, 1}};
  ExpectRefused(Try(), "condition: shape [2, 4, 3] found, [rows, 2, 3] wanted");
  ask_.terms.knots = ConditionKnots{.depths = {0, 1, 1, 2}};
  ExpectRefused(Try(), "condition_knots.depths[2]: 1; strictly increasing depths wanted");
  ask_.terms.knots = absl::InvalidArgumentError("interpolation: 'square'");
  ExpectRefused(Try(), "interpolation: 'square'");
  ask_.terms.knots = ConditionKnots{.depths = {0, 0.3, 0.6, 1}};
  Guide({1, 2}, {1, 2});
  ExpectRefused(Try(), "a weight for each step and condition_knots");
  ask_.terms.plan = ParsePlan("ab2:3");
  Guide({2}, {1});
  EXPECT_THAT(std::string(Try().status().message()), HasSubstr("'ab2:3' takes no condition_knots"));
}

TEST(PrepareFlow, EveryCallIsBoundedByItsPredictedWork) {
  CallLimits limits = kLimits;
  const StreamAsk stream{.sample = Samples(100000)};
  const auto flow = ServedTinyFlow();
  EXPECT_EQ(Prepare(Samples(6), flow, limits)->work.macs,
            2 * Prepare(Samples(3), flow, limits)->work.macs);
  EXPECT_EQ(ChunkOf(*PrepareStream(stream, flow, limits), 64, 3).work.macs,
            Prepare(Samples(3), flow, limits)->work.macs);
  limits.request_macs_max = 1;
  ExpectRefused(Prepare(Samples(3), flow, limits), "MACs");
  ExpectRefused(PrepareStream(stream, flow, limits), "MACs");
  const std::vector<float> points(4, 0.5f);
  ExpectRefused(
      Prepare(
          LogProbAsk{.inputs = TensorView{Dtype::kF32, {2, 2}, std::as_bytes(std::span(points))}},
          flow, limits),
      "MACs");
}

TEST(PrepareStream, ChunksFitTheReplyLimit) {
  StreamAsk ask{.sample = Samples(100000)};
  CallLimits limits = kLimits;
  const auto served = ServedTinyFlow();
  EXPECT_EQ(PrepareStream(ask, served, limits)->chunk_rows, 64);
  limits.request_bytes_max = 160;
  EXPECT_EQ(PrepareStream(ask, served, limits)->chunk_rows, 20);  // two floats a row
  limits.request_bytes_max = kLimits.request_bytes_max;
  limits.request_macs_max = 1;
  ExpectRefused(PrepareStream(ask, served, limits), "(1 rows, ");
  limits.request_macs_max = kLimits.request_macs_max;
  limits.chunk_rows_default = 1 << 20;
  EXPECT_EQ(PrepareStream(ask, served, limits)->chunk_rows, 1000);  // request_rows_max
  limits.reply_bytes_default = 3000;
  const int64_t fitting = PrepareStream(ask, served, limits)->chunk_rows;
  EXPECT_GT(fitting, 1);
  EXPECT_LT(fitting, 100);
  ask.chunk_rows = fitting;
  EXPECT_TRUE(PrepareStream(ask, served, limits).ok());
  ask.chunk_rows = fitting + 1;
  ExpectRefused(PrepareStream(ask, served, limits), "smaller chunk_rows");
  ask.chunk_rows = -1;
  ExpectRefused(PrepareStream(ask, served, limits), "chunk_rows: rows: -1");
}

TEST(PrepareStream, ChunksAreRowsOfTheStream) {
  const auto stream =
      PrepareStream({.sample = Samples(100000), .chunk_rows = 10}, ServedTinyFlow(), kLimits);
  ASSERT_TRUE(stream.ok()) << stream.status();
  EXPECT_EQ(stream->rows, 100000);
  const Work chunk = ChunkOf(*stream, 30, 10).work;
  EXPECT_EQ(chunk.segment.first_row, 130u);
  EXPECT_EQ(chunk.segment.seed, 11u);
  EXPECT_EQ(chunk.segment.rows, 10);
  EXPECT_EQ(chunk.bytes, 10 * 8);
}

TEST(PrepareLogProb, StartsFromThePoint) {
  const std::vector<float> points(8, 0.25f);
  TensorView rows{Dtype::kF32, {4, 2}, std::as_bytes(std::span(points))};
  const auto prepared = Prepare(LogProbAsk{.inputs = rows}, ServedTinyFlow(), kLimits);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_EQ(prepared->work.spec.entry, Entry::kState);
  EXPECT_EQ(prepared->work.spec.direction, Direction::kDataToNoise);
  EXPECT_EQ(prepared->work.spec.log_density, LogDensity::kDivergence);
  EXPECT_FALSE(prepared->work.spec.want_state);
  EXPECT_EQ(prepared->work.bytes, 4 * (2 * 4 + 8));  // points in, densities out
  rows.dtype = Dtype::kU8;
  ExpectRefused(Prepare(LogProbAsk{.inputs = rows}, ServedTinyFlow(), kLimits), "U8 is not taken");
}

// The second row failed.
WorkResult TwoRows() {
  WorkResult result{.engine = "e", .device = "cpu"};
  result.rows.status = {RowStatus::kConverged, RowStatus::kNonFinite};
  result.rows.state = TensorOf(std::vector<double>{1, 2, 3, 4}, {2, 2}, Dtype::kF32);
  result.rows.log_density = TensorOf(std::vector<double>{-1, -2}, {2}, Dtype::kF64);
  return result;
}

TEST(SampleAnswer, FailedRowsAreNan) {
  const SampleAnswer answer = MakeAnswer(SampleAsk{}, *ServedTinyFlow(), {}, TwoRows());
  EXPECT_EQ(answer.samples.as<float>()[1], 2.0f);
  EXPECT_TRUE(std::isnan(answer.samples.as<float>()[2]));
  EXPECT_EQ(answer.log_density.as<double>()[0], -1);
  EXPECT_TRUE(std::isnan(answer.log_density.as<double>()[1]));
  EXPECT_EQ(answer.info.row_status.size(), 2u);
}

TEST(LogProbAnswer, FailedRowsAreNan) {
  const LogProbAnswer answer = MakeAnswer(LogProbAsk{}, *ServedTinyFlow(), {}, TwoRows());
  EXPECT_EQ(answer.log_prob.as<double>()[0], -1);
  EXPECT_TRUE(std::isnan(answer.log_prob.as<double>()[1]));
  EXPECT_EQ(answer.info.engine, "e");
}

}  // namespace
}  // namespace hyperserve
