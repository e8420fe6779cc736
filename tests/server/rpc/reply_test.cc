#include "server/rpc/reply.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace hyperserve {
namespace {

using testing::ElementsAre;

const ReplyContext kContext{.request_id = "id-1",
                            .model = "m",
                            .plan = "hyper_euler:2",
                            .tier = Tier::kExact,
                            .generation = 4,
                            .base_digest = "d",
                            .times = {.queue_seconds = 0.25, .solve_seconds = 0.5}};

// Two rows, logits (0, log 3) and (log 4, 0); the state is one number.
WorkResult TwoRows(RowStatus second) {
  WorkResult result{.engine = "e", .device = "cpu"};
  result.rows.status = {RowStatus::kConverged, second};
  result.rows.state = HostTensor::Zeros(Dtype::kF32, {2, 1});
  result.rows.state.as<float>()[1] = 9;
  result.rows.outputs = HostTensor::Zeros(Dtype::kF32, {2, 2});
  result.rows.outputs.as<float>()[1] = std::log(3.0f);
  result.rows.outputs.as<float>()[2] = std::log(4.0f);
  result.rows.nfe = {2, 2};
  result.rows.correction_evaluations = {2, 2};
  result.rows.macs = {100, 101};
  result.rows.bucket = 32;
  return result;
}

std::vector<float> Floats(const v1::Tensor& wire) {
  std::vector<float> numbers(wire.data().size() / sizeof(float));
  std::memcpy(numbers.data(), wire.data().data(), wire.data().size());
  return numbers;
}

TEST(FillInfo, SaysWhatWasDone) {
  v1::SolveInfo info;
  FillInfo(kContext, TwoRows(RowStatus::kConverged), &info);
  EXPECT_EQ(info.request_id(), "id-1");
  EXPECT_EQ(info.plan(), "hyper_euler:2");
  EXPECT_EQ(info.tier(), "exact");
  EXPECT_EQ(info.generation(), 4);
  EXPECT_THAT(info.nfe(), ElementsAre(2));          // equal: one value
  EXPECT_THAT(info.macs(), ElementsAre(100, 101));  // not equal: all
  EXPECT_THAT(info.row_status(), ElementsAre(v1::ROW_STATUS_CONVERGED));
  EXPECT_EQ(info.queue_seconds(), 0.25);
  EXPECT_EQ(info.solve_seconds(), 0.5);
  EXPECT_EQ(info.bucket(), 32);
}

TEST(FillClassify, AbsentWantIsLabels) {
  v1::ClassifyReply reply;
  FillClassify(kContext, {}, {"cat", "dog"}, TwoRows(RowStatus::kConverged), &reply);
  EXPECT_THAT(reply.labels(), ElementsAre(1, 0));
  EXPECT_THAT(reply.label_names(), ElementsAre("dog", "cat"));
  EXPECT_FALSE(reply.has_logits() || reply.has_probabilities() || reply.has_state() ||
               reply.has_top_labels());
}

TEST(FillClassify, FailedRowsAreMinusOneAndNan) {
  v1::ClassifyWant want;
  want.set_labels(true);
  want.set_top_k(1);
  want.set_probabilities(true);
  want.set_logits(true);
  want.set_state(true);
  v1::ClassifyReply reply;
  FillClassify(kContext, want, {"cat", "dog"}, TwoRows(RowStatus::kStepLimit), &reply);
  EXPECT_THAT(reply.labels(), ElementsAre(1, -1));
  EXPECT_THAT(reply.label_names(), ElementsAre("dog", ""));
  EXPECT_THAT(reply.info().row_status(),
              ElementsAre(v1::ROW_STATUS_CONVERGED, v1::ROW_STATUS_STEP_LIMIT));
  const auto probabilities = Floats(reply.probabilities());
  EXPECT_FLOAT_EQ(probabilities[0], 0.25f);
  EXPECT_FLOAT_EQ(probabilities[1], 0.75f);
  EXPECT_TRUE(std::isnan(probabilities[2]) && std::isnan(probabilities[3]));
  EXPECT_TRUE(std::isnan(Floats(reply.logits())[3]));
  EXPECT_TRUE(std::isnan(Floats(reply.state())[1]));
  const auto top = Floats(reply.top_probabilities());
  EXPECT_FLOAT_EQ(top[0], 0.75f);
  EXPECT_TRUE(std::isnan(top[1]));
  int64_t top_labels[2];
  ASSERT_EQ(reply.top_labels().data().size(), sizeof top_labels);
  std::memcpy(top_labels, reply.top_labels().data().data(), sizeof top_labels);
  EXPECT_THAT(top_labels, ElementsAre(1, -1));
}

TEST(FillClassify, AHeadThatOverflowsFailsItsRow) {
  WorkResult result = TwoRows(RowStatus::kConverged);
  result.rows.outputs.as<float>()[0] = std::numeric_limits<float>::infinity();
  v1::ClassifyReply reply;
  FillClassify(kContext, {}, {}, std::move(result), &reply);
  EXPECT_THAT(reply.labels(), ElementsAre(-1, 0));
  EXPECT_EQ(reply.label_names_size(), 0);
  EXPECT_EQ(reply.info().row_status(0), v1::ROW_STATUS_NON_FINITE);
}

TEST(FillSolve, HalfSolvedStatesOnlyWhereAsked) {
  v1::SolveReply reply;
  FillSolve(kContext, {}, TwoRows(RowStatus::kStepLimit), &reply);
  EXPECT_TRUE(std::isnan(Floats(reply.state())[1]));
  EXPECT_FALSE(reply.has_saved());
  v1::SolveRequest partial;
  partial.set_partial_states(true);
  FillSolve(kContext, partial, TwoRows(RowStatus::kStepLimit), &reply);
  EXPECT_EQ(Floats(reply.state())[1], 9.0f);
}

TEST(FillChunk, CarriesItsRowsAndTheGeneration) {
  v1::SampleChunk chunk;
  FillChunk(kContext, 1000, TwoRows(RowStatus::kNonFinite), &chunk);
  EXPECT_EQ(chunk.first_row(), 1000u);
  EXPECT_EQ(chunk.rows(), 2);
  EXPECT_EQ(chunk.generation(), 4);
  EXPECT_THAT(chunk.row_status(), ElementsAre(v1::ROW_STATUS_CONVERGED, v1::ROW_STATUS_NON_FINITE));
  EXPECT_TRUE(std::isnan(Floats(chunk.samples())[1]));
  EXPECT_FALSE(chunk.has_summary() || chunk.has_log_density());
}

}  // namespace
}  // namespace hyperserve
