#include "core/model/net/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/io/safetensors.h"
#include "core/io/tensor.h"
#include "core/model/layers/layer.h"
#include "core/model/net/cost.h"
#include "core/model/net/net.h"
#include "core/model/net/table.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "core/plan/step_grid.h"
#include "tests/testing/model_fixture.h"
#include "tests/testing/random_model.h"

namespace hyperserve {
namespace {

using fixture::NamedTensor;
using fixture::SafetensorsOf;
using testing::ElementsAre, testing::HasSubstr, testing::IsSupersetOf;

constexpr char kJson[] =
    R"({"format": 1, "kind": "flow", "span": [0, 1], "direction": "data_to_noise",
  "input": {"shape": [2]}, "field": [{"linear": {"in": 2, "out": 2}}]})";

std::vector<NamedTensor> Weights() {
  return {{"field.0.weight", {2, 2}, {0.5, -1, 1, 0.25}}, {"field.0.bias", {2}, {0.1, 0.2}}};
}

std::string Refusal(const std::vector<NamedTensor>& tensors) {
  const auto model = Model::FromBytes(kJson, SafetensorsOf(tensors));
  EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(model.status().message());
}

TEST(ModelTest, LoadsAFolder) {
  const TemporaryFolder folder;
  ASSERT_TRUE(fixture::WriteTinyRepository(folder.path()).ok());
  const auto model = Model::Load(folder.path() + "/tiny_classifier");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->state_shape(), (Shape{4}));
  EXPECT_EQ((*model)->state_elements(), 4);
  EXPECT_EQ((*model)->input_elements(), 16);
  EXPECT_EQ((*model)->outputs(), 3);
  EXPECT_EQ((*model)->stem_macs(), 64);
  EXPECT_EQ((*model)->field_macs(), 32);
  EXPECT_EQ((*model)->head_macs(), 12);
  EXPECT_EQ((*model)->base_digest().size(), 64u);
  const auto correction =
      Hypersolver::Load(folder.path() + "/tiny_classifier/hypersolvers/euler/1", **model);
  ASSERT_TRUE(correction.ok()) << correction.status();
  EXPECT_GT((*correction)->macs(), 0);
  EXPECT_EQ(Model::Load(folder.path() + "/absent").status().code(), absl::StatusCode::kNotFound);
}

TEST(ModelTest, NamesTheTensorThatDoesNotFit) {
  auto tensors = Weights();
  tensors[1].shape = {1, 2};
  EXPECT_THAT(Refusal(tensors), HasSubstr("'field.0.bias': shape wanted [2], found [1, 2]"));
  tensors = Weights();
  tensors.pop_back();
  EXPECT_THAT(Refusal(tensors), HasSubstr("'field.0.bias' [2] is missing"));
  tensors = Weights();
  tensors.push_back({"field.1.weight", {1}, {0}});
  EXPECT_THAT(Refusal(tensors), HasSubstr("'field.1.weight' [1] is not one that the spec expects"));
  for (const double bad : {std::nan(""), HUGE_VAL}) {
    tensors = Weights();
    tensors[0].values[3] = bad;
    EXPECT_THAT(Refusal(tensors), HasSubstr("'field.0.weight' holds a number that is not finite"));
  }
  const std::vector<double> large = {1e300, 0};  // finite as it is stored only
  const auto doubles = Model::FromBytes(
      kJson, SerializeSafetensors(
                 {{"field.0.bias", {Dtype::kF64, {2}, std::as_bytes(std::span(large))}}}));
  EXPECT_THAT(std::string(doubles.status().message()),
              HasSubstr("'field.0.bias' holds a number that is not finite in float32"));
  EXPECT_FALSE(Model::FromBytes(kJson, "").ok());
  EXPECT_FALSE(Model::FromBytes(kJson, SafetensorsOf(Weights()).substr(0, 100)).ok());
}

TEST(ModelTest, IgnoresTheCounterOfBatches) {
  auto tensors = Weights();
  tensors.push_back({"stem.0.num_batches_tracked", {1}, {7}});
  EXPECT_TRUE(Model::FromBytes(kJson, SafetensorsOf(tensors)).ok());
}

TEST(ModelTest, TakesStoredHalvesAndDoubles) {
  const std::vector<uint16_t> halves = {0x3800, 0xbc00, 0x3c00, 0x3400};  // 0.5 -1 1 0.25
  const std::vector<double> doubles = {1.0 / 3, 2.0 / 3};
  const auto model = Model::FromBytes(
      kJson, SerializeSafetensors(
                 {{"field.0.weight", {Dtype::kF16, {2, 2}, std::as_bytes(std::span(halves))}},
                  {"field.0.bias", {Dtype::kF64, {2}, std::as_bytes(std::span(doubles))}}}));
  ASSERT_TRUE(model.ok()) << model.status();
  const at::Tensor x = at::ones({1, 2}, at::kDouble);
  const at::Tensor y = (*model)->weights().Get("field", at::kCPU, at::kDouble).Apply(x, {});
  EXPECT_EQ(y[0][0].item<double>(), -0.5 + 1.0 / 3);
  EXPECT_EQ(y[0][1].item<double>(), 1.25 + 2.0 / 3);
}

TEST(ModelTest, TakesBfloat16) {
  const std::vector<uint16_t> brains = {0x3F00, 0xBF80, 0x3F80, 0x3E80};  // 0.5 -1 1 0.25
  const std::vector<float> bias = {0, 0};
  const auto model = Model::FromBytes(
      kJson, SerializeSafetensors(
                 {{"field.0.weight", {Dtype::kBF16, {2, 2}, std::as_bytes(std::span(brains))}},
                  {"field.0.bias", {Dtype::kF32, {2}, std::as_bytes(std::span(bias))}}}));
  ASSERT_TRUE(model.ok()) << model.status();
  const at::Tensor x = at::ones({1, 2}, at::kFloat);
  const at::Tensor y = (*model)->weights().Get("field", at::kCPU, at::kFloat).Apply(x, {});
  EXPECT_EQ(y[0][0].item<float>(), -0.5F);
  EXPECT_EQ(y[0][1].item<float>(), 1.25F);
}

// The peak of resident memory since the last call, in bytes.
int64_t TakePeak() {
  std::ifstream status("/proc/self/status");
  int64_t kilobytes = 0;
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) kilobytes = std::stoll(line.substr(6));
  }
  std::ofstream("/proc/self/clear_refs") << 5;
  return kilobytes << 10;
}

TEST(ModelTest, WeightsAreNeverHeldTwice) {
  constexpr int64_t kWidth = 6000;  // 144 MB of weights
  const std::string json =
      R"({"format": 1, "kind": "flow", "span": [0, 1], "direction": "data_to_noise",
          "input": {"shape": [6000]}, "field": [{"linear": {"in": 6000, "out": 6000, "bias": false}}]})";
  const HostTensor weight = HostTensor::Zeros(Dtype::kF32, {kWidth, kWidth});
  std::string bytes = SerializeSafetensors({{"field.0.weight", weight.view()}});
  const auto size = static_cast<int64_t>(bytes.size());
  TakePeak();
  const int64_t before = TakePeak();
  const auto model = Model::FromBytes(json, std::move(bytes));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_LT(TakePeak() - before, size / 2) << "the bytes are there before";
}

TEST(ModelTest, WeightsAreConvertedOnceAndShared) {
  const auto model = Model::FromBytes(kJson, SafetensorsOf(Weights())).value();
  const TensorMap first = model->weights().Tensors(at::kCPU, at::kDouble);
  const TensorMap second = model->weights().Tensors(at::kCPU, at::kDouble);
  EXPECT_EQ(first.at("field.0.weight").data_ptr(), second.at("field.0.weight").data_ptr());
  EXPECT_FALSE(first.at("field.0.weight").is_inference());
}

TEST(HypersolverTest, RefusesAnotherBaseAndAnotherKind) {
  const auto model = fixture::RandomModel(fixture::FlowSpec(), 1);
  const auto other = fixture::RandomModel(fixture::FlowSpec(), 2);
  HypersolverSpec spec = fixture::FlowCorrectionSpec();
  spec.base_digest = other->base_digest();
  const std::string weights = fixture::RandomWeights(ExpectedTensors(spec.net, "net"), 3);
  absl::Status status =
      Hypersolver::FromBytes(PrintHypersolverSpec(spec), weights, *model).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr(other->base_digest()));
  EXPECT_TRUE(Hypersolver::FromBytes(PrintHypersolverSpec(spec), weights, *other).ok());

  const auto images = fixture::RandomModel(fixture::ImageSpec(), 1);
  spec = fixture::ImageCorrectionSpec();
  spec.direction = Direction::kNoiseToData;
  spec.base_digest = images->base_digest();
  status =
      Hypersolver::FromBytes(PrintHypersolverSpec(spec),
                             fixture::RandomWeights(ExpectedTensors(spec.net, "net"), 3), *images)
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
}

TEST(HypersolverTest, AppliesWithinItsRangeOnly) {
  const auto model = fixture::RandomModel(fixture::FlowSpec(), 1);
  const auto g = fixture::RandomHypersolver(fixture::FlowCorrectionSpec(), *model, 3);
  const FixedPlan heun{.method = {.method = Method::kHeun}, .steps = 4, .hypersolved = true};
  const Direction to_data = Direction::kNoiseToData;
  EXPECT_TRUE(CheckApplies(*g, heun, to_data, {0.0, 4.0}).ok());
  EXPECT_TRUE(CheckApplies(*g, heun, to_data, {0.0, 0.2}).ok());
  const FixedPlan euler{.method = {.method = Method::kEuler}, .steps = 4, .hypersolved = true};
  FixedPlan grid = heun;  // steps of 0.5, 0.5, 1 and 2 eighths of the span
  grid.grid = {.kind = StepGrid::Kind::kListed, .shares = {0, 0.125, 0.25, 0.5, 1}};
  EXPECT_TRUE(CheckApplies(*g, grid, to_data, {0.0, 2.0}).ok());
  EXPECT_TRUE(CheckApplies(*g, grid, to_data, {0.0, 0.4}).ok());
  for (const absl::Status& refused :
       {CheckApplies(*g, heun, to_data, {0.0, 4.04}), CheckApplies(*g, heun, to_data, {0.0, 0.196}),
        CheckApplies(*g, heun, Direction::kDataToNoise, {0.0, 2.0}),
        CheckApplies(*g, euler, to_data, {0.0, 2.0}), CheckApplies(*g, grid, to_data, {0.0, 2.1}),
        CheckApplies(*g, grid, to_data, {0.0, 0.39})}) {
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  }
}

class LearnedFilesTest : public ::testing::Test {
 protected:
  std::string Refusal(const HypersolverSpec& spec, const std::map<std::string, Shape>& tensors) {
    const auto loaded = Hypersolver::FromBytes(PrintHypersolverSpec(spec),
                                               fixture::RandomWeights(tensors, 3), *model_);
    return std::string(loaded.status().message());
  }
  std::map<std::string, Shape> Tensors() const {
    std::map<std::string, Shape> tensors;
    for (const TableSpec& table : spec_.tables) {
      tensors.merge(ExpectedCoefficients(table, {2}));
      tensors.merge(ExpectedTensors(table.net, TablePrefix(table.evaluations) + ".net"));
    }
    return tensors;
  }
  const std::shared_ptr<const Model> model_ = fixture::RandomModel(fixture::FlowSpec(), 1);
  const HypersolverSpec spec_ = fixture::FlowTablesSpec(*model_, Coefficients::kMap);
};

TEST_F(LearnedFilesTest, EachTableHasItsCostAndNodes) {
  EXPECT_EQ(Refusal(spec_, Tensors()), "");
  const auto learned = fixture::RandomHypersolver(spec_, *model_, 3);
  EXPECT_EQ(learned->spec().steps, (std::vector<int>{0, 1, 3}));
  EXPECT_EQ(learned->table(2), nullptr);
  EXPECT_EQ(learned->table(0)->macs, 2 * 7 + 7 * 2);
  EXPECT_EQ(learned->table(1)->macs, 2 * (2 * 2) + 6 * 2);  // a and B as maps, and g
  EXPECT_EQ(learned->table(3)->macs, (3 + 6) * (2 * 2));
  EXPECT_EQ(learned->macs(), 36);
  EXPECT_EQ(learned->table(3)->nodes.size(), 3u);
}

TEST_F(LearnedFilesTest, TablesAreBoundOnceForEachDtype) {
  const auto learned = fixture::RandomHypersolver(spec_, *model_, 3);
  const auto bound = [&](int64_t evaluations, at::ScalarType dtype) {
    const Hypersolver::TableFacts& table = *learned->table(evaluations);
    return learned->tables().Get(*table.spec, table.nodes, at::kCPU, dtype);
  };
  const auto table = bound(3, at::kFloat);
  EXPECT_EQ(table->nodes, learned->table(3)->nodes);
  EXPECT_EQ(table->slopes.size(), 3u);
  EXPECT_EQ(bound(3, at::kFloat), table);
  EXPECT_NE(bound(3, at::kDouble), table);
  EXPECT_EQ(bound(1, at::kFloat)->nodes.size(), 1u);
  const at::Tensor row = at::ones({1, 2}, at::kDouble);
  EXPECT_EQ(bound(3, at::kDouble)->state[0].map->Apply(row, {}).scalar_type(), at::kDouble);
}

TEST_F(LearnedFilesTest, NamesTheCoefficientsThatDoNotFit) {
  auto tensors = Tensors();
  tensors["table.3.slopes"] = {5, 2, 2};
  EXPECT_THAT(Refusal(spec_, tensors),
              HasSubstr("'table.3.slopes': shape wanted [6, 2, 2], found [5, 2, 2]"));
  tensors = Tensors();
  tensors.erase("table.1.offset");
  EXPECT_THAT(Refusal(spec_, tensors), HasSubstr("'table.1.offset' [1, 2] is missing"));
  tensors = Tensors();
  tensors["table.2.state"] = {2, 2, 2};
  EXPECT_THAT(Refusal(spec_, tensors), HasSubstr("'table.2.state'"));
  HypersolverSpec narrow = spec_;
  narrow.span = {0.0, 0.05};  // the nodes lie within [0.1, 0.9]
  EXPECT_THAT(Refusal(narrow, Tensors()), HasSubstr("outside the span [0, 0.05]"));
}

// Files hold float32, so a node at an end of the span may lie a little outside.
TEST_F(LearnedFilesTest, ANodeAtAnEndOfTheSpanMayBeRounded) {
  const auto learned = fixture::RandomHypersolver(spec_, *model_, 3);
  double last = 0;
  for (const int n : {1, 3}) {
    for (const double node : learned->table(n)->nodes) last = std::max(last, node);
  }
  HypersolverSpec shorter = spec_;
  shorter.span = {0.0, last * (1 - 5e-7)};
  EXPECT_EQ(Refusal(shorter, Tensors()), "");
  const auto clamped = fixture::RandomHypersolver(shorter, *model_, 3);
  for (const int n : {1, 3}) {
    for (const double node : clamped->table(n)->nodes) EXPECT_LE(node, shorter.span[1]);
  }
  shorter.span[1] = last * (1 - 1e-5);
  EXPECT_THAT(Refusal(shorter, Tensors()), HasSubstr("outside the span"));
}

TEST(ClassicalRivalsTest, OfEachMethodTheLargestKWithinTheMacs) {
  const auto model = fixture::RandomModel(fixture::FlowSpec(), 1);
  const auto rivals = [&](int64_t evaluations, int64_t less = 0) {
    std::vector<std::string> plans;
    for (const FixedPlan& plan :
         ClassicalRivals(*model, evaluations * model->field_macs() - less)) {
      plans.push_back(PrintPlan(Plan{plan}));
    }
    return plans;
  };
  EXPECT_THAT(rivals(5), IsSupersetOf({"euler:5", "midpoint:2", "heun:2", "ralston:2", "rk3:1",
                                       "rk4:1", "rk4_38:1", "ab2:4"}));
  EXPECT_THAT(rivals(2, 1), ElementsAre("euler:1"));
  EXPECT_THAT(rivals(1, 1), ElementsAre("euler:1"));  // it costs more, but nothing costs less
  EXPECT_EQ(rivals(20000).front(), "euler:10000");
  EXPECT_EQ(rivals(20000).back(), "ab2:63");  // a table holds 64 evaluations
  const auto competes = [](const MethodName& name) {
    return !name.embedded && name.method != Method::kAlpha;
  };
  EXPECT_EQ(std::ssize(rivals(20000)), std::ranges::count_if(kMethodNames, competes) + 1);
}

}  // namespace
}  // namespace hyperserve
