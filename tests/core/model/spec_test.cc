#include "core/model/spec/spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "core/io/tensor.h"
#include "core/model/layers/dense.h"
#include "core/model/layers/images.h"
#include "core/model/layers/joins.h"
#include "core/model/layers/kind.h"
#include "core/model/layers/layer.h"
#include "core/model/spec/spec_limits.h"
#include "core/plan/method.h"
#include "tests/testing/random_model.h"

namespace hyperserve {
namespace {

using testing::HasSubstr;

const Shape kState = {2};
const std::string kDigest(64, 'a');

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

constexpr char kClassifier[] = R"json({"format": 1, "kind": "classifier", "span": [0, 1],
  "input": {"shape": [1, 28, 28], "unit_range": true, "mean": [0.5], "deviation": [0.25]},
  "stem": [{"batch_norm": {"channels": 1}},
           {"augment": {"layers": [{"conv2d": {"in": 1, "out": 3, "kernel": 3, "padding": 1}}]}}],
  "field": [{"depth_cat": {}},
            {"conv2d": {"in": 5, "out": 6, "kernel": 3, "padding": 1, "bias": false}},
            {"softplus": {}}, {"group_norm": {"groups": 2, "channels": 6}}, {"gelu": {}},
            {"conv2d": {"in": 6, "out": 4, "kernel": 1}}],
  "head": [{"avg_pool": {"kernel": 2}}, {"mean_pool": {}}, {"linear": {"in": 4, "out": 2}}],
  "labels": ["a", "b"]})json";

constexpr char kCorrection[] = R"json({"format": 1, "method": "alpha(0.75)",
  "direction": "noise_to_data", "eps": [0.1, 1], "steps": [1, 2],
  "inputs": ["state", "slope_1", "slope_2", "state_0", "step"],
  "net": [{"linear": {"in": 9, "out": 4}}, {"prelu": {"slopes": 4}},
          {"linear": {"in": 4, "out": 2}}],
  "base_digest": "DIGEST", "provenance": {"recipe": "pinwheel"}})json";

std::string Correction() { return Replaced(kCorrection, "DIGEST", kDigest); }

TEST(ModelSpecTest, ReadsEveryField) {
  const absl::StatusOr<ModelSpec> spec = ParseModelSpec(kClassifier);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->kind, ModelKind::kClassifier);
  EXPECT_EQ(spec->direction, Direction::kForward);
  EXPECT_EQ(spec->input.shape, (Shape{1, 28, 28}));
  EXPECT_TRUE(spec->input.unit_range);
  EXPECT_EQ(spec->input.deviation, std::vector<double>{0.25});
  EXPECT_EQ(StateShape(*spec).value(), (Shape{4, 28, 28}));
  EXPECT_EQ(OutputShape(spec->head, {4, 28, 28}).value(), (Shape{2}));
  EXPECT_FALSE(std::get<Conv2dLayer>(spec->field[1].kind).bias);
  EXPECT_EQ(std::get<AvgPoolLayer>(spec->head[0].kind).stride, 2);
}

TEST(ModelSpecTest, PrinterIsTheParsersInverse) {
  for (const std::string& text : {std::string(kClassifier), PrintModelSpec(fixture::FlowSpec()),
                                  PrintModelSpec(fixture::ImageSpec())}) {
    const std::string printed = PrintModelSpec(ParseModelSpec(text).value());
    EXPECT_EQ(PrintModelSpec(ParseModelSpec(printed).value()), printed);
    EXPECT_EQ(ParseModelSpec(printed)->field.size(), ParseModelSpec(text)->field.size());
  }
  const std::string printed =
      PrintHypersolverSpec(ParseHypersolverSpec(Correction(), kState).value());
  EXPECT_EQ(PrintHypersolverSpec(ParseHypersolverSpec(printed, kState).value()), printed);
  EXPECT_THAT(printed, HasSubstr("\"alpha(0.75)\""));
  EXPECT_THAT(printed, HasSubstr("\"recipe\": \"pinwheel\""));
}

TEST(ModelSpecTest, CountsAndNamesTensors) {
  const ModelSpec spec = ParseModelSpec(kClassifier).value();
  // 28 * 28 pixels: 1 -> 3 channels by 3x3; 5 -> 6 by 3x3, then 6 -> 4 by 1x1; 4 -> 2 once.
  EXPECT_EQ(CountMacs(spec.stem, {1, 28, 28}).value(), 784 * 27);
  EXPECT_EQ(CountMacs(spec.field, {4, 28, 28}).value(), 784 * (5 * 6 * 9 + 6 * 4));
  EXPECT_EQ(CountMacs(spec.head, {4, 28, 28}).value(), 8);
  const std::map<std::string, Shape> stem = {{"stem.0.weight", {1}},
                                             {"stem.0.bias", {1}},
                                             {"stem.0.running_mean", {1}},
                                             {"stem.0.running_var", {1}},
                                             {"stem.1.layers.0.weight", {3, 1, 3, 3}},
                                             {"stem.1.layers.0.bias", {3}}};
  EXPECT_EQ(ExpectedTensors(spec.stem, "stem"), stem);
  const std::map<std::string, Shape> field = {{"field.1.weight", {6, 5, 3, 3}},
                                              {"field.3.weight", {6}},
                                              {"field.3.bias", {6}},
                                              {"field.5.weight", {4, 6, 1, 1}},
                                              {"field.5.bias", {4}}};
  EXPECT_EQ(ExpectedTensors(spec.field, "field"), field);
}

struct BadText {
  std::string from, to, message;
};

TEST(ModelSpecTest, RefusesWithTheFieldsName) {
  const BadText cases[] = {
      {"\"format\": 1", "\"format\": 2", "format: 2"},
      {"\"kind\"", "\"colour\": 1, \"kind\"", "colour"},
      {"\"classifier\"", "\"tree\"", "kind: 'tree'"},
      {"\"span\": [0, 1]", "\"span\": [1, 0]", "span"},
      {"\"span\": [0, 1]", "\"span\": [0]", "span: wants two"},
      {"\"span\": [0, 1]", "\"span\": [-1.7e308, 1.7e308]", "has no finite length"},
      {"\"span\": [0, 1]", "\"span\": [0, \"NaN\"]", "span"},
      {"[1, 28, 28]", "[1, 28]", "input.shape"},
      {"[1, 28, 28]", "[1, 0, 28]", "input.shape: 0 is outside"},
      {"[1, 28, 28]", "[65536, 65536, 65536]", "elements of a row"},
      {"\"mean\": [0.5]", "\"mean\": [0.5, 1]", "input.mean"},
      {"\"deviation\": [0.25]", "\"deviation\": [0]", "input.deviation: 0"},
      {"{\"in\": 1, \"out\": 3", "{\"in\": 2, \"out\": 3",
       "stem[1].augment.layers[0].conv2d: wants rows of [2, H, W], found [1, 28, 28]"},
      {"\"kernel\": 1}", "\"kernel\": 0}", "field[5].conv2d.kernel: 0 is outside [1, 64]"},
      {"\"kernel\": 1}", "\"kernel\": 64}", "field[5].conv2d: a kernel of 64 x 64 does not fit"},
      {"{\"in\": 6, \"out\": 4", "{\"in\": 6, \"out\": 5",
       "field: maps a state of [4, 28, 28] to [5, 28, 28]"},
      {"{\"in\": 6, \"out\": 4", "{\"in\": 6, \"out\": 65537",
       "field[5].conv2d.out: 65537 is outside [1, 65536]"},
      {"{\"in\": 6, \"out\": 4", "{\"in\": 6, \"out\": 65536", "more numbers than the limit"},
      {"\"groups\": 2", "\"groups\": 4", "does not divide"},
      {"{\"gelu\": {}}", "{}", "field[4]: a layer names exactly one kind"},
      {"{\"mean_pool\": {}}", "{\"depth_cat\": {}}", "head[1].depth_cat"},
      {"{\"mean_pool\": {}}, ", "", "head[1].linear: wants rows of [4]"},
      {"[\"a\", \"b\"]", "[\"a\"]", "labels: 1 labels for 2 outputs"},
      {"\"avg_pool\": {\"kernel\": 2", "\"avg_pool\": {\"kernel\": 2, \"padding\": 2",
       "head[0].avg_pool: padding 2 is more than half"},
      {"\"span\"", "\"direction\": \"noise_to_data\", \"span\"", "direction"},
      {"\"span\"", "\"direction\": \"up\", \"span\"", "direction: 'up'"},
      {"\"labels\": [\"a\", \"b\"]}", "\"labels\": [\"a\", \"b\"]", ""},
  };
  for (const BadText& bad : cases) {
    const auto spec = ParseModelSpec(Replaced(kClassifier, bad.from, bad.to));
    EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument) << bad.to;
    EXPECT_THAT(std::string(spec.status().message()), HasSubstr(bad.message));
  }
}

TEST(ModelSpecTest, TheConditionIsTheOneThatLayersRead) {
  const std::string flow = PrintModelSpec(fixture::ConditionalFlowSpec());
  EXPECT_EQ(ParseModelSpec(flow)->condition, (Shape{3}));
  const std::string wide = absl::StrReplaceAll(flow, {{"\"features\": 3", "\"features\": 4"}});
  EXPECT_THAT(std::string(ParseModelSpec(wide).status().message()),
              HasSubstr("field[0].condition_cat: reads 4 features, condition.shape is [3]"));
  ModelSpec spec = fixture::ConditionalFlowSpec();
  const auto message = [](const ModelSpec& wrong) {
    return std::string(ParseModelSpec(PrintModelSpec(wrong)).status().message());
  };
  spec.condition = {};
  EXPECT_THAT(message(spec), HasSubstr("field[0].condition_cat: the model has no condition"));
  spec.condition = {3, 4, 5};
  EXPECT_THAT(message(spec), HasSubstr("condition.shape: wants [features], found [3, 4, 5]"));
  spec.condition = {65537};
  EXPECT_THAT(message(spec), HasSubstr("condition.shape: 65537 is outside [1, 65536]"));
  spec = fixture::FlowSpec();
  spec.condition = {3};
  EXPECT_THAT(message(spec), HasSubstr("condition: no layer of field reads it"));
  spec = fixture::ImageSpec();
  spec.head.insert(spec.head.begin() + 1, {ConditionCatLayer{.features = 3}});
  EXPECT_THAT(message(spec), HasSubstr("head[1].condition_cat: there is a condition in field"));
}

TEST(ModelSpecTest, TheConditionThatStandsForNone) {
  const std::string flow = PrintModelSpec(fixture::GuidedFlowSpec());
  EXPECT_THAT(ParseModelSpec(flow)->no_condition, testing::ElementsAre(0.5, -1, 2));
  EXPECT_TRUE(ParseModelSpec(PrintModelSpec(fixture::ConditionalFlowSpec()))->no_condition.empty());
  ModelSpec spec = fixture::GuidedFlowSpec();
  const auto message = [&] {
    return std::string(ParseModelSpec(PrintModelSpec(spec)).status().message());
  };
  spec.no_condition = {1, 2};
  EXPECT_THAT(message(), HasSubstr("condition.none: 2 numbers, condition.shape is [3]"));
  spec.no_condition = {1, 2, 1e39};
  EXPECT_THAT(message(), HasSubstr("condition.none: 1e+39 is not finite in float32"));
}

TEST(ModelSpecTest, AFieldThatIsCode) {
  ModelSpec spec = fixture::ConditionalFlowSpec();
  spec.field_package = FieldPackageSpec{.macs = int64_t{1} << 40};
  const auto message = [](const std::string& json) {
    return std::string(ParseModelSpec(json).status().message());
  };
  EXPECT_THAT(message(PrintModelSpec(spec)), HasSubstr("one of the two is wanted"));
  spec.field.clear();
  const auto read = ParseModelSpec(PrintModelSpec(spec));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->field_package->macs, int64_t{1} << 40);
  for (const int64_t macs : {int64_t{0}, int64_t{2'000'000'000'000'000}}) {
    spec.field_package = FieldPackageSpec{.macs = macs};
    EXPECT_THAT(message(PrintModelSpec(spec)), HasSubstr("field_package.macs: "));
  }
  spec.field_package.reset();
  EXPECT_THAT(message(PrintModelSpec(spec)), HasSubstr("or a field_package in its place"));
}

constexpr char kTrajectory[] = R"json({"format": 1, "kind": "trajectory", "span": [0, 2],
  "input": {"shape": [2], "mean": [0.5, 1]}, "stem": [{"linear": {"in": 2, "out": 3}}],
  "field": [{"tanh": {}}], "save_at": [0, 0.5, 2]})json";

TEST(ModelSpecTest, ReadsRegressorsAndTrajectories) {
  const auto regressor =
      ParseModelSpec(absl::StrReplaceAll(kClassifier, {{"classifier", "regressor"}}));
  ASSERT_TRUE(regressor.ok()) << regressor.status();
  EXPECT_EQ(regressor->kind, ModelKind::kRegressor);
  EXPECT_TRUE(HasOutputs(regressor->kind));
  const auto trajectory = ParseModelSpec(kTrajectory);
  ASSERT_TRUE(trajectory.ok()) << trajectory.status();
  EXPECT_EQ(trajectory->kind, ModelKind::kTrajectory);
  EXPECT_FALSE(HasOutputs(trajectory->kind));
  EXPECT_EQ(trajectory->save_at, (std::vector<double>{0, 0.5, 2}));
  for (const ModelSpec& spec : {*regressor, *trajectory}) {
    EXPECT_EQ(PrintModelSpec(ParseModelSpec(PrintModelSpec(spec)).value()), PrintModelSpec(spec));
  }
}

TEST(ModelSpecTest, RefusesWrongTrajectoriesAndRegressors) {
  const BadText trajectories[] = {
      {"[0, 0.5, 2]", "[]", "save_at: depths: 0 is outside [1, 1000]"},
      {"[0, 0.5, 2]", "[0.5, 0.5]", "save_at[1]: 0.5; strictly increasing depths within [0, 2]"},
      {"[0, 0.5, 2]", "[0.5, 2.5]", "save_at[1]: 2.5"},
      {"\"field\"", "\"head\": [{\"tanh\": {}}], \"field\"", "head: a trajectory has none"},
      {"\"field\"", "\"labels\": [\"a\"], \"field\"", "labels: a trajectory has none"},
      {"\"span\"", "\"direction\": \"noise_to_data\", \"span\"", "a trajectory's is forward"}};
  for (const BadText& bad : trajectories) {
    const auto refused = ParseModelSpec(Replaced(kTrajectory, bad.from, bad.to));
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr(bad.message));
  }
  const std::string regressor = absl::StrReplaceAll(kClassifier, {{"classifier", "regressor"}});
  EXPECT_THAT(
      std::string(ParseModelSpec(Replaced(regressor, "\"span\"", "\"save_at\": [1], \"span\""))
                      .status()
                      .message()),
      HasSubstr("save_at: it is that of a trajectory; requests to a regressor bring"));
  ModelSpec headless = ParseModelSpec(regressor).value();
  headless.head.clear();
  EXPECT_THAT(std::string(ParseModelSpec(PrintModelSpec(headless)).status().message()),
              HasSubstr("head: a regressor needs one"));
  EXPECT_THAT(
      std::string(
          ParseModelSpec(R"({"format": 1, "kind": "oracle", "span": [0, 1]})").status().message()),
      HasSubstr("kind: 'oracle' is none of classifier, flow, regressor, trajectory"));
}

TEST(ModelSpecTest, RefusesFlowsWithPartsOfAClassifier) {
  const std::string flow = PrintModelSpec(fixture::FlowSpec());
  const BadText cases[] = {
      {"\"direction\": \"data_to_noise\",", "", "direction: a flow's"},
      {"\"field\"", "\"labels\": [\"a\"], \"field\"", "labels"},
      {"\"field\"", "\"head\": [{\"tanh\": {}}], \"field\"", "head"},
      {"\"field\"", "\"stem\": [{\"tanh\": {}}], \"field\"", "stem"},
      {"\"shape\"", "\"unit_range\": true, \"shape\"", "input"},
  };
  for (const BadText& bad : cases) {
    const auto spec = ParseModelSpec(Replaced(flow, bad.from, bad.to));
    EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument) << bad.to;
    EXPECT_THAT(std::string(spec.status().message()), HasSubstr(bad.message));
  }
}

TEST(ModelSpecTest, HostileFilesEndInWords) {
  std::string deep = "{\"tanh\": {}}";
  for (int i = 0; i <= layer_limits::kNesting; ++i) {
    deep = absl::StrCat("{\"augment\": {\"layers\": [", deep, "]}}");
  }
  EXPECT_THAT(
      std::string(ParseModelSpec(Replaced(kClassifier, "{\"gelu\": {}}", deep)).status().message()),
      HasSubstr("nested deeper"));
  std::string many = "{\"gelu\": {}}";
  for (int i = 0; i < layer_limits::kLayers; ++i) many += ", {\"relu\": {}}";
  EXPECT_THAT(
      std::string(ParseModelSpec(Replaced(kClassifier, "{\"gelu\": {}}", many)).status().message()),
      HasSubstr("more layers"));
  std::string very_deep;
  for (int i = 0; i < 100000; ++i) very_deep += "{\"augment\": {\"layers\": [";
  EXPECT_FALSE(ParseModelSpec("{\"field\": [" + very_deep).ok());
  EXPECT_FALSE(ParseModelSpec(std::string(2 << 20, ' ')).ok());
  EXPECT_FALSE(ParseModelSpec("").ok());
  EXPECT_FALSE(ParseModelSpec(std::string("\0\xff{", 3)).ok());
}

TEST(HypersolverSpecTest, ReadsAndChecks) {
  const auto spec = ParseHypersolverSpec(Correction(), kState);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->method, (MethodChoice{.method = Method::kAlpha, .alpha = 0.75}));
  EXPECT_EQ(spec->direction, Direction::kNoiseToData);
  EXPECT_EQ(CorrectionInputShape(*spec, kState).value(), (Shape{9}));
  EXPECT_EQ(CorrectionInputShape(*spec, {3, 8, 8}).value(), (Shape{13, 8, 8}));
  const BadText cases[] = {
      {"alpha(0.75)", "alpha(2)", "method"},
      {"alpha(0.75)", "leapfrog", "leapfrog"},
      {"alpha(0.75)", "euler", "slope_2 wants a method of two stages"},
      {"noise_to_data", "sideways", "direction"},
      {"[0.1, 1]", "[1, 0.1]", "eps"},
      {"[0.1, 1]", "[-1, 1]", "eps"},
      {"[0.1, 1]", "[0.1]", "eps"},
      {"[0.1, 1]", "[0.1, 1e308]", "eps: 1e+308 is no step size"},
      {"\"steps\": [1, 2]", "\"steps\": [0]", "steps: 0"},
      {"\"slope_1\"", "\"state\"", "twice"},
      {"\"slope_1\"", "\"slope_9\"", "inputs: 'slope_9'"},
      {"\"slope_1\", ", "", "net[0].linear: wants rows of [9], found [7]"},
      {"{\"in\": 4, \"out\": 2}", "{\"in\": 4, \"out\": 3}", "net: maps its inputs [9] to [3]"},
      {"\"slopes\": 4", "\"slopes\": 3", "net[1]"},
      {kDigest, "abc", "base_digest"},
      {kDigest, std::string(64, 'G'), "base_digest"},
  };
  for (const BadText& bad : cases) {
    const auto refused = ParseHypersolverSpec(Replaced(Correction(), bad.from, bad.to), kState);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument) << bad.to;
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr(bad.message));
  }
}

TEST(UnknownNames, AreAnsweredWithTheKnownOnes) {
  const auto refusal = [](const std::string& json) {
    return std::string(ParseModelSpec(json).status().message());
  };
  const std::string layer = refusal(R"({"format": 1, "kind": "flow", "field": [{"sellu": {}}]})");
  EXPECT_THAT(layer, ::testing::HasSubstr("field[0]: unknown name 'sellu'; known: linear, "));
  const std::string field = refusal(R"({"format": 1, "knd": "flow"})");
  EXPECT_THAT(field, ::testing::HasSubstr("unknown name 'knd'; known: format, "));
}

TEST(WrongValues, AreToldInOurWords) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"format": "one"})", "format: \"one\" stands where a whole number below 2^31 belongs"},
      {R"({"format": 1, "span": ["a", 1]})", "span[0]: \"a\" stands where a number belongs"},
      {R"({"format": 1, "kind": 3})", "kind: 3 stands where a text in quotes belongs"},
      {R"({"format": 1, "field": [{"linear": {"in": 2.5}}]})",
       "field[0].linear.in: 2.5 stands where a whole number"},
      {R"({"format": 1, "field": [{"linear": {}, "tanh": {}}]})",
       "field[0]: two kinds stand here, and there can be one"},
      {"[1, 2]", "the file holds one JSON object"}};
  for (const auto& [json, words] : cases) {
    const auto refused = ParseModelSpec(json);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument) << json;
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr(words));
  }
}

}  // namespace
}  // namespace hyperserve
