#include "server/calls/classify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <span>

#include "core/engine/batch_spec.h"
#include "core/io/tensor.h"
#include "core/model/net/model.h"
#include "core/plan/row_status.h"
#include "server/batching/work.h"
#include "server/calls/limits.h"
#include "server/calls/prepare.h"
#include "server/registry/served_model.h"
#include "tests/server/calls/served_fixture.h"
#include "tests/testing/model_fixture.h"

namespace hyperserve {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const CallLimits kLimits = LimitsWith({.request_rows_max = 1000});

void ExpectRefused(const absl::StatusOr<Prepared>& result, const std::string& words) {
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument) << result.status();
  EXPECT_THAT(std::string(result.status().message()), HasSubstr(words));
}

// Images of one grey. The ask borrows them from this object.
class Images {
 public:
  explicit Images(int64_t rows, float grey = 0.5f)
      : pixels_(static_cast<size_t>(rows) * 16, grey),
        ask_{.inputs = TensorView{.dtype = Dtype::kF32,
                                  .shape = {rows, 1, 4, 4},
                                  .bytes = std::as_bytes(std::span(pixels_))}} {}
  ClassifyAsk& ask() { return ask_; }

 private:
  std::vector<float> pixels_;
  ClassifyAsk ask_;
};

TEST(PrepareClassify, OwnsItsRows) {
  auto images = std::make_unique<Images>(3);
  const auto prepared = Prepare(images->ask(), ServedTinyClassifier(), kLimits);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  images.reset();
  const Work& work = prepared->work;
  EXPECT_EQ(work.segment.rows, 3);
  EXPECT_EQ(reinterpret_cast<const float*>(work.segment.data.bytes.data())[47], 0.5f);
  EXPECT_EQ(work.spec.entry, Entry::kInput);
  EXPECT_TRUE(work.spec.want_outputs);
  EXPECT_EQ(work.model_label, "tiny_classifier");
  EXPECT_EQ(work.plan_label, "dopri5:1e-5");
  EXPECT_GT(work.macs, 0);
}

TEST(PrepareClassify, Refusals) {
  const auto served = ServedTinyClassifier();
  Images images(1, 1.5f);
  images.ask().want.top_k = 4;
  ExpectRefused(Prepare(images.ask(), served, kLimits), "want.top_k: 4 is not within [0, 3]");
  images.ask().want.top_k = 3;
  ExpectRefused(Prepare(images.ask(), served, kLimits), "within [0, 1]");
  ExpectRefused(Prepare(images.ask(), ServedTinyFlow(), kLimits),
                "needs a classifier; model 'tiny_flow' is a flow");
  CallLimits limits = kLimits;
  limits.request_macs_max = 1;
  ExpectRefused(Prepare(Images(3).ask(), served, limits), "MACs");
}

TEST(PrepareClassify, ReplyLimit) {
  const auto served = ServedTinyClassifier();
  Images images(1000);
  CallLimits limits = kLimits;
  limits.reply_bytes_default = 10000;
  ExpectRefused(Prepare(images.ask(), served, limits), "max_reply_bytes = 10000");
  images.ask().terms.max_reply_bytes = 1 << 20;
  EXPECT_TRUE(Prepare(images.ask(), served, limits).ok());
  images.ask().terms.max_reply_bytes = limits.reply_bytes_max + 1;
  ExpectRefused(Prepare(images.ask(), served, limits), "reply_bytes_max");
}

TEST(PrepareClassify, StatesCountOnlyWhereTheyAreWanted) {
  const auto served = ServedTinyClassifier();
  Images images(3);
  const auto without = Prepare(images.ask(), served, kLimits);
  images.ask().want.state = true;
  const auto with = Prepare(images.ask(), served, kLimits);
  EXPECT_FALSE(without->work.spec.want_state);
  EXPECT_TRUE(with->work.spec.want_state);
  EXPECT_EQ(with->work.bytes - without->work.bytes, 3 * 4 * 4);
}

// A model whose states are [32, 28, 28], as those of `fashion`: much larger than its images.
std::shared_ptr<ServedModel> ServedImageClassifier() {
  const std::string json = R"({"format": 1, "kind": "classifier", "span": [0, 1],
      "input": {"shape": [1, 28, 28], "unit_range": true},
      "stem": [{"conv2d": {"in": 1, "out": 32, "kernel": 1}}], "field": [{"tanh": {}}],
      "head": [{"mean_pool": {}}, {"linear": {"in": 32, "out": 2}}]})";
  auto served = std::make_shared<ServedModel>();
  served->name = "images";
  served->model = *Model::FromBytes(
      json, fixture::SafetensorsOf({{"stem.0.weight", {32, 1, 1, 1}, std::vector<double>(32, 0.1)},
                                    {"stem.0.bias", {32}, std::vector<double>(32)},
                                    {"head.1.weight", {2, 32}, std::vector<double>(64, 0.1)},
                                    {"head.1.bias", {2}, {0, 0}}}));
  return served;
}

TEST(PrepareClassify, FourThousandImagesPassWithTheDefaultLimits) {
  const std::vector<uint8_t> pixels(4000 * 28 * 28, 128);
  ClassifyAsk ask{.inputs = TensorView{.dtype = Dtype::kU8,
                                       .shape = {4000, 1, 28, 28},
                                       .bytes = std::as_bytes(std::span(pixels))}};
  const auto served = ServedImageClassifier();
  const auto prepared = Prepare(ask, served, LimitsWith());
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_LT(prepared->work.bytes, 4000 * (28 * 28 + 100));
  ask.want.state = true;
  CallLimits large_replies = LimitsWith();
  large_replies.reply_bytes_default = int64_t{1} << 30;
  ExpectRefused(Prepare(ask, served, large_replies), "bytes of inputs and outputs (4000 rows, ");
}

// Two rows, logits (0, log 3, -50) and (log 4, 0, -50); the state is one number.
WorkResult TwoRows(RowStatus second) {
  WorkResult result{.engine = "e", .device = "cpu"};
  result.rows.status = {RowStatus::kConverged, second};
  result.rows.state = HostTensor::Zeros(Dtype::kF32, {2, 1});
  result.rows.state.as<float>()[1] = 9;
  result.rows.outputs = HostTensor::Zeros(Dtype::kF32, {2, 3});
  const auto logits = result.rows.outputs.as<float>();
  logits[1] = std::log(3.0f);
  logits[3] = std::log(4.0f);
  logits[2] = logits[5] = -50;
  return result;
}

TEST(ClassifyAnswer, NothingWantedIsLabels) {
  const ClassifyAnswer answer =
      MakeAnswer(ClassifyAsk{}, *ServedTinyClassifier(), {}, TwoRows(RowStatus::kConverged));
  EXPECT_THAT(answer.labels, ElementsAre(1, 0));
  EXPECT_THAT(answer.label_names, ElementsAre("middle", "low"));
  for (const HostTensor* other : {&answer.top_labels, &answer.top_probabilities,
                                  &answer.probabilities, &answer.logits, &answer.state}) {
    EXPECT_THAT(other->bytes, IsEmpty());
  }
}

TEST(ClassifyAnswer, FailedRowsAreMinusOneAndNan) {
  const ClassifyAsk ask{
      .want = {.labels = true, .top_k = 1, .probabilities = true, .logits = true, .state = true}};
  const ClassifyAnswer answer =
      MakeAnswer(ask, *ServedTinyClassifier(), {}, TwoRows(RowStatus::kStepLimit));
  EXPECT_THAT(answer.labels, ElementsAre(1, -1));
  EXPECT_THAT(answer.label_names, ElementsAre("middle", ""));
  EXPECT_THAT(answer.info.row_status, ElementsAre(RowStatus::kConverged, RowStatus::kStepLimit));
  EXPECT_EQ(answer.probabilities.shape, (Shape{2, 3}));
  const auto probabilities = answer.probabilities.as<float>();
  EXPECT_FLOAT_EQ(probabilities[0], 0.25f);
  EXPECT_FLOAT_EQ(probabilities[1], 0.75f);
  EXPECT_TRUE(std::isnan(probabilities[3]) && std::isnan(probabilities[5]));
  EXPECT_EQ(answer.logits.as<float>()[1], std::log(3.0f));
  EXPECT_TRUE(std::isnan(answer.logits.as<float>()[3]));
  EXPECT_EQ(answer.state.as<float>()[0], 0);
  EXPECT_TRUE(std::isnan(answer.state.as<float>()[1]));
  EXPECT_EQ(answer.top_probabilities.shape, (Shape{2, 1}));
  EXPECT_FLOAT_EQ(answer.top_probabilities.as<float>()[0], 0.75f);
  EXPECT_TRUE(std::isnan(answer.top_probabilities.as<float>()[1]));
  EXPECT_THAT(answer.top_labels.as<int64_t>(), ElementsAre(1, -1));
}

TEST(ClassifyAnswer, AHeadThatOverflowsFailsItsRow) {
  WorkResult result = TwoRows(RowStatus::kConverged);
  result.rows.outputs.as<float>()[0] = std::numeric_limits<float>::infinity();
  const ClassifyAnswer answer =
      MakeAnswer(ClassifyAsk{}, *ServedImageClassifier(), {}, std::move(result));
  EXPECT_THAT(answer.labels, ElementsAre(-1, 0));
  EXPECT_THAT(answer.label_names, IsEmpty()) << "the model has none";
  EXPECT_EQ(answer.info.row_status[0], RowStatus::kNonFinite);
}

}  // namespace
}  // namespace hyperserve
