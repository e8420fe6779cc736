#include "server/rpc/prepare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/server/rpc/served_fixture.h"

namespace hyperserve {
namespace {

using testing::HasSubstr;

const CallLimits kLimits{.request_rows_max = 1000, .save_at_max = 3, .chunk_rows_default = 64};

template <class T>
void ExpectRefused(const absl::StatusOr<T>& result, const std::string& words) {
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument) << result.status();
  EXPECT_THAT(std::string(result.status().message()), HasSubstr(words));
}

void SetFloats(v1::Tensor* wire, Shape shape, float value) {
  wire->set_dtype(v1::DTYPE_F32);
  wire->mutable_shape()->Assign(shape.begin(), shape.end());
  const std::vector<float> numbers(static_cast<size_t>(*ElementCount(shape)), value);
  wire->set_data(numbers.data(), numbers.size() * sizeof(float));
}

v1::ClassifyRequest Images(int64_t rows) {
  v1::ClassifyRequest request;
  SetFloats(request.mutable_inputs(), {rows, 1, 4, 4}, 0.5f);
  return request;
}

v1::SampleRequest Samples(int64_t rows) {
  v1::SampleRequest request;
  request.set_rows(rows);
  request.set_seed(11);
  request.set_first_row(100);
  return request;
}

TEST(PrepareClassify, OwnsItsRows) {
  auto request = std::make_unique<v1::ClassifyRequest>(Images(3));
  const auto prepared = PrepareClassify(*request, ServedTinyClassifier(), kLimits);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  request.reset();
  const Work& work = prepared->work;
  EXPECT_EQ(work.segment.rows, 3);
  EXPECT_EQ(reinterpret_cast<const float*>(work.segment.data.bytes.data())[47], 0.5f);
  EXPECT_EQ(work.spec.entry, Entry::kInput);
  EXPECT_TRUE(work.spec.want_outputs);
  EXPECT_GE(work.bytes, 3 * 16 * 4);
  EXPECT_EQ(work.model_label, "tiny_classifier");
  EXPECT_EQ(work.plan_label, "dopri5:1e-5");
}

TEST(PrepareClassify, Refusals) {
  const auto served = ServedTinyClassifier();
  v1::ClassifyRequest request = Images(1);
  request.mutable_want()->set_top_k(4);
  ExpectRefused(PrepareClassify(request, served, kLimits), "want.top_k: 4 is not within [0, 3]");
  ExpectRefused(PrepareClassify(Images(1), ServedTinyFlow(), kLimits),
                "needs a classifier; model 'tiny_flow' is a flow");
  SetFloats(request.mutable_inputs(), {1, 1, 4, 4}, 1.5f);
  ExpectRefused(PrepareClassify(request, served, kLimits), "top_k");
  request.clear_want();
  ExpectRefused(PrepareClassify(request, served, kLimits), "within [0, 1]");
}

TEST(Prepare, EveryCallIsBoundedByItsPredictedWork) {
  CallLimits limits = kLimits;
  v1::SampleStreamRequest stream;
  *stream.mutable_sample() = Samples(100000);
  const auto flow = ServedTinyFlow(), classifier = ServedTinyClassifier();
  EXPECT_GT(PrepareClassify(Images(3), classifier, limits)->work.macs, 0);
  EXPECT_EQ(PrepareSample(Samples(6), flow, limits)->work.macs,
            2 * PrepareSample(Samples(3), flow, limits)->work.macs);
  const auto prepared = PrepareStream(stream, flow, limits);
  EXPECT_EQ(ChunkOf(prepared->whole.work, 64, 3).macs,
            PrepareSample(Samples(3), flow, limits)->work.macs);
  limits.request_macs_max = 1;
  ExpectRefused(PrepareClassify(Images(3), classifier, limits), "MACs");
  ExpectRefused(PrepareSample(Samples(3), flow, limits), "MACs");
  ExpectRefused(PrepareStream(stream, flow, limits), "MACs");
  v1::LogProbRequest log_prob;
  SetFloats(log_prob.mutable_inputs(), {2, 2}, 0.5f);
  ExpectRefused(PrepareLogProb(log_prob, flow, limits), "MACs");
  v1::SolveRequest solve;
  SetFloats(solve.mutable_state(), {2, 2}, 0.5f);
  ExpectRefused(PrepareSolve(solve, flow, limits), "MACs");
}

TEST(PrepareClassify, ReplyLimit) {
  const auto served = ServedTinyClassifier();
  v1::ClassifyRequest request = Images(1000);
  CallLimits limits = kLimits;
  limits.reply_bytes_default = 10000;
  ExpectRefused(PrepareClassify(request, served, limits), "max_reply_bytes = 10000");
  request.mutable_options()->set_max_reply_bytes(1 << 20);
  EXPECT_TRUE(PrepareClassify(request, served, limits).ok());
  request.mutable_options()->set_max_reply_bytes(limits.reply_bytes_max + 1);
  ExpectRefused(PrepareClassify(request, served, limits), "reply_bytes_max");
}

TEST(PrepareSample, IsNoiseByRowNumber) {
  v1::SampleRequest request = Samples(5);
  request.set_log_density(true);
  const auto prepared = PrepareSample(request, ServedTinyFlow(), kLimits);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  const Work& work = prepared->work;
  EXPECT_EQ(work.spec.entry, Entry::kNoise);
  EXPECT_EQ(work.spec.direction, Direction::kNoiseToData);
  EXPECT_EQ(work.spec.log_density, LogDensity::kDivergence);
  EXPECT_EQ(work.segment.rows, 5);
  EXPECT_EQ(work.segment.seed, 11u);
  EXPECT_EQ(work.segment.first_row, 100u);
  EXPECT_EQ(work.bytes, 5 * (2 * 4 + 8));
}

TEST(PrepareSample, Refusals) {
  const auto served = ServedTinyFlow();
  ExpectRefused(PrepareSample(Samples(0), served, kLimits), "rows: 0");
  ExpectRefused(PrepareSample(Samples(-3), served, kLimits), "rows: -3");
  ExpectRefused(PrepareSample(Samples(1001), served, kLimits), "request_rows_max = 1000");
  ExpectRefused(PrepareSample(Samples(1), ServedTinyClassifier(), kLimits), "needs a flow");
  v1::SampleRequest last = Samples(1);
  last.set_first_row(std::numeric_limits<uint64_t>::max());
  EXPECT_TRUE(PrepareSample(last, served, kLimits).ok());
  last.set_rows(2);
  ExpectRefused(PrepareSample(last, served, kLimits), "2^64 - 1");
  CallLimits limits = kLimits;
  limits.reply_bytes_default = 5000;
  ExpectRefused(PrepareSample(Samples(1000), served, limits), "call SampleStream");
}

TEST(PrepareStream, ChunksFitTheReplyLimit) {
  v1::SampleStreamRequest request;
  *request.mutable_sample() = Samples(100000);
  CallLimits limits = kLimits;
  const auto served = ServedTinyFlow();
  EXPECT_EQ(PrepareStream(request, served, limits)->chunk_rows, 64);
  limits.request_bytes_max = 160;
  EXPECT_EQ(PrepareStream(request, served, limits)->chunk_rows, 20);  // two floats a row
  limits.request_bytes_max = kLimits.request_bytes_max;
  limits.request_macs_max = 1;
  ExpectRefused(PrepareStream(request, served, limits), "(1 rows, ");
  limits.request_macs_max = kLimits.request_macs_max;
  limits.chunk_rows_default = 1 << 20;
  EXPECT_EQ(PrepareStream(request, served, limits)->chunk_rows, 1000);  // request_rows_max
  limits.reply_bytes_default = 3000;
  const int64_t fitting = PrepareStream(request, served, limits)->chunk_rows;
  EXPECT_GT(fitting, 1);
  EXPECT_LT(fitting, 100);
  request.set_chunk_rows(fitting);
  EXPECT_TRUE(PrepareStream(request, served, limits).ok());
  request.set_chunk_rows(fitting + 1);
  ExpectRefused(PrepareStream(request, served, limits), "smaller chunk_rows");
  request.set_chunk_rows(-1);
  ExpectRefused(PrepareStream(request, served, limits), "chunk_rows: rows: -1");

  request.set_chunk_rows(10);
  const auto stream = PrepareStream(request, served, limits);
  const Work chunk = ChunkOf(stream->whole.work, 30, 10);
  EXPECT_EQ(chunk.segment.first_row, 130u);
  EXPECT_EQ(chunk.segment.rows, 10);
  EXPECT_EQ(chunk.bytes, 10 * 8);
}

TEST(PrepareLogProb, StartsFromThePoint) {
  v1::LogProbRequest request;
  SetFloats(request.mutable_inputs(), {4, 2}, 0.25f);
  const auto prepared = PrepareLogProb(request, ServedTinyFlow(), kLimits);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_EQ(prepared->work.spec.entry, Entry::kState);
  EXPECT_EQ(prepared->work.spec.direction, Direction::kDataToNoise);
  EXPECT_EQ(prepared->work.spec.log_density, LogDensity::kDivergence);
  request.mutable_inputs()->set_dtype(v1::DTYPE_U8);
  ExpectRefused(PrepareLogProb(request, ServedTinyFlow(), kLimits), "U8 is not taken");
}

v1::SolveRequest States(int64_t rows) {
  v1::SolveRequest request;
  SetFloats(request.mutable_state(), {rows, 4}, 1.0f);
  return request;
}

TEST(PrepareSolve, OwnSpanAndSaveAt) {
  const auto served = ServedTinyClassifier();
  v1::SolveRequest request = States(2);
  request.mutable_span()->set_begin(0.25);
  request.mutable_span()->set_end(0.75);
  request.add_save_at(0.25);
  request.add_save_at(0.5);
  const auto prepared = PrepareSolve(request, served, kLimits);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_EQ(prepared->work.spec.span, (std::array<double, 2>{0.25, 0.75}));
  EXPECT_EQ(prepared->work.spec.save_at, (std::vector<double>{0.25, 0.5}));
  EXPECT_EQ(prepared->work.spec.entry, Entry::kState);
  // The model's own span, spelled out, is no plan of its own.
  request.mutable_span()->set_begin(0);
  request.mutable_span()->set_end(1);
  EXPECT_EQ(PrepareSolve(request, served, kLimits)->work.spec.span, std::nullopt);
}

TEST(PrepareSolve, FlowsRunTheFieldsOwnDirection) {
  v1::SolveRequest request;
  SetFloats(request.mutable_inputs(), {1, 2}, 1.0f);
  const auto prepared = PrepareSolve(request, ServedTinyFlow(), kLimits);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_EQ(prepared->work.spec.direction, Direction::kNoiseToData);
  EXPECT_EQ(prepared->work.spec.entry, Entry::kInput);
}

TEST(PrepareSolve, Refusals) {
  const auto served = ServedTinyClassifier();
  ExpectRefused(PrepareSolve({}, served, kLimits), "neither inputs nor state");
  v1::SolveRequest request = States(1);
  request.mutable_span()->set_begin(1);
  ExpectRefused(PrepareSolve(request, served, kLimits), "begin < end");
  request.mutable_span()->set_end(std::numeric_limits<double>::infinity());
  ExpectRefused(PrepareSolve(request, served, kLimits), "finite");
  request.clear_span();
  request.add_save_at(0.5);
  request.add_save_at(0.5);
  ExpectRefused(PrepareSolve(request, served, kLimits), "save_at[1]: 0.5");
  request.set_save_at(1, 1.5);
  ExpectRefused(PrepareSolve(request, served, kLimits), "save_at[1]: 1.5");
  request.set_save_at(1, std::numeric_limits<double>::quiet_NaN());
  ExpectRefused(PrepareSolve(request, served, kLimits), "save_at[1]: nan");
  request.add_save_at(0.8);
  request.add_save_at(0.9);
  ExpectRefused(PrepareSolve(request, served, kLimits), "save_at_max = 3");
}

}  // namespace
}  // namespace hyperserve
