// The table of layer kinds: its entries agree with the messages of the proto, printed layers read
// back the same, and layers that are not allowed are refused with a message.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "core/io/tensor.h"
#include "core/model/layers/activations.h"
#include "core/model/layers/dense.h"
#include "core/model/layers/depth.h"
#include "core/model/layers/images.h"
#include "core/model/layers/joins.h"
#include "core/model/layers/kind.h"
#include "core/model/layers/layer.h"
#include "core/model/layers/layer_proto.h"
#include "core/model/layers/norms.h"
#include "core/model/spec/proto_json.h"
#include "hyperserve/v1/model.pb.h"
#include "tests/testing/random_layers.h"

namespace hyperserve {
namespace {

using testing::HasSubstr;

// The compiler refuses half an entry, whichever half.
struct Whole : Elementwise<RowRule::kAny> {
  static constexpr std::string_view kName = "whole";
  static void Fields(auto&) {}
};
static_assert(PlainEntry<Whole>);
struct WithoutName : Whole {
  void kName();
};
struct WithoutRows : Whole {
  void kRows();
};
struct WithoutFields : Whole {
  void Fields();
};
struct WithoutShape : Whole {
  void Output();
};
struct WithoutMacs : Whole {
  void Macs();
};
struct WithoutTensors : Whole {
  void Tensors();
};
static_assert(!PlainEntry<WithoutName> && !PlainEntry<WithoutRows> && !PlainEntry<WithoutFields>);
static_assert(!PlainEntry<WithoutShape> && !PlainEntry<WithoutMacs> && !PlainEntry<WithoutTensors>);
struct WithoutJoin : Whole {
  LayerList layers;
};
static_assert(NestedEntry<ResidualLayer> && !NestedEntry<WithoutJoin>);
struct BranchesWithoutJoin : Whole {
  std::vector<LayerList> branches;
};
static_assert(BranchedEntry<ParallelLayer> && !BranchedEntry<BranchesWithoutJoin>);

// Calls visit(Kind{}) for each kind of the table.
void ForEachKind(const auto& visit) {
  [&]<class... Kinds>(const std::variant<Kinds...>*) {
    (visit(Kinds{}), ...);
  }(static_cast<const LayerTable::Kind*>(nullptr));
}

// The names that an entry's fields have in JSON.
struct Names {
  std::set<std::string>& names;
  void operator()(const char* name, const auto&...) const { names.insert(name); }
  void operator()(const char* name, const char* list, const auto&...) const {
    names.insert({name, list});
  }
};

TEST(LayerTableTest, IsWhatTheProtoSays) {
  const google::protobuf::OneofDescriptor& kinds =
      *v1::Layer::descriptor()->FindOneofByName("kind");
  int entries = 0;
  ForEachKind([&]<class Kind>(const Kind&) {
    ++entries;
    const auto* field = v1::Layer::descriptor()->FindFieldByName(std::string(Kind::kName));
    ASSERT_NE(field, nullptr) << Kind::kName << " has no field in hyperserve.v1.Layer";
    EXPECT_EQ(field->containing_oneof(), &kinds) << Kind::kName;
    std::set<std::string> said, known;
    for (int i = 0; i < field->message_type()->field_count(); ++i) {
      said.insert(field->message_type()->field(i)->name());
    }
    const Names names{known};
    Kind::Fields(names);
    EXPECT_EQ(known, said) << Kind::kName;
  });
  EXPECT_EQ(entries, kinds.field_count()) << "a field of hyperserve.v1.Layer has no entry";
}

// Tests that go through the examples then cover every kind.
TEST(LayerTableTest, EveryKindHasAnExample) {
  std::set<std::string_view> shown;
  for (const auto& example : fixture::LayerExamples()) shown.insert(LayerName(example.layer));
  ForEachKind([&]<class Kind>(const Kind&) { EXPECT_TRUE(shown.contains(Kind::kName)); });
}

std::string Printed(const Layer& layer) {
  v1::ModelSpec proto;
  LayersToProto({layer}, "field", proto);
  return PrintProtoJson(proto);
}

absl::StatusOr<LayerList> Parsed(const std::string& json) {
  v1::ModelSpec proto;
  const absl::Status status = ParseProtoJson(json, &proto);
  if (!status.ok()) return status;
  return LayersFromProto(proto, "field");
}

// A field {"field": [layer]} without its layer.
absl::StatusOr<Layer> ParsedLayer(const std::string& json) {
  const absl::StatusOr<LayerList> layers = Parsed("{\"field\": [" + json + "]}");
  if (!layers.ok()) return layers.status();
  return layers->at(0);
}

TEST(LayerTableTest, WhatIsPrintedReadsBack) {
  for (const fixture::LayerExample& example : fixture::LayerExamples()) {
    const std::string text = Printed(example.layer);
    const absl::StatusOr<LayerList> layers = Parsed(text);
    ASSERT_TRUE(layers.ok()) << layers.status() << text;
    EXPECT_EQ(layers->size(), 1u);
    EXPECT_EQ(layers->at(0).kind.index(), example.layer.kind.index());
    EXPECT_EQ(Printed(layers->at(0)), text);
    EXPECT_EQ(OutputShape(*layers, example.row).value(),
              OutputShape(example.layer, example.row).value());
    EXPECT_EQ(ExpectedTensors(*layers, "field"), ExpectedTensors({example.layer}, "field"));
  }
}

template <class Kind>
Kind Read(const std::string& json) {
  const absl::StatusOr<Layer> layer = ParsedLayer(json);
  EXPECT_TRUE(layer.ok()) << layer.status();
  return layer.ok() ? std::get<Kind>(layer->kind) : Kind{};
}

TEST(LayerTableTest, AbsentFieldsMeanTheirDefaults) {
  EXPECT_EQ(Read<SoftplusLayer>(R"({"softplus": {}})").beta, 1.0);
  EXPECT_EQ(Read<EluLayer>(R"({"elu": {}})").alpha, 1.0);
  EXPECT_EQ(Read<LeakyReluLayer>(R"({"leaky_relu": {}})").negative_slope, 0.01);
  EXPECT_EQ(Read<GeluLayer>(R"({"gelu": {}})").approximate, GeluForm::kNone);
  EXPECT_EQ(Read<LayerNormLayer>(R"({"layer_norm": {"normalized_shape": [3]}})").eps, 1e-5);
  EXPECT_EQ(Read<MaxPoolLayer>(R"({"max_pool": {"kernel": 3}})").stride, 3);
  EXPECT_FALSE(Read<DepthCatLayer>(R"({"depth_cat": {}})").first);
  const auto conv = Read<Conv2dLayer>(R"({"conv2d": {"in": 2, "out": 4, "kernel": 3}})");
  EXPECT_EQ(conv.kernel.height, 3);
  EXPECT_EQ(conv.kernel.width, 3);
  EXPECT_EQ(conv.padding.height, 0);
  EXPECT_EQ(conv.stride, 1);
  EXPECT_EQ(conv.groups, 1);
  EXPECT_TRUE(conv.bias);
}

TEST(LayerTableTest, ReadsWhatIsSaid) {
  EXPECT_EQ(Read<SoftplusLayer>(R"({"softplus": {"beta": 2.5}})").beta, 2.5);
  EXPECT_EQ(Read<EluLayer>(R"({"elu": {"alpha": 0}})").alpha, 0.0);
  EXPECT_EQ(Read<LeakyReluLayer>(R"({"leaky_relu": {"negative_slope": -1}})").negative_slope, -1.0);
  EXPECT_EQ(Read<GeluLayer>(R"({"gelu": {"approximate": "tanh"}})").approximate, GeluForm::kTanh);
  EXPECT_EQ(Read<GeluLayer>(R"({"gelu": {"approximate": "none"}})").approximate, GeluForm::kNone);
  EXPECT_TRUE(Read<DepthCatLayer>(R"({"depth_cat": {"first": true}})").first);
  const auto conv = Read<Conv2dLayer>(
      R"({"conv2d": {"in": 2, "out": 4, "kernel_size": [3, 1], "padding_size": [1, 0], "groups": 2,
                     "bias": false}})");
  EXPECT_EQ(conv.kernel.height, 3);
  EXPECT_EQ(conv.kernel.width, 1);
  EXPECT_EQ(conv.padding.height, 1);
  EXPECT_EQ(conv.padding.width, 0);
  EXPECT_EQ(conv.groups, 2);
  EXPECT_FALSE(conv.bias);
  EXPECT_EQ(ExpectedTensors({{conv}}, "net"),
            (std::map<std::string, Shape>{{"net.0.weight", {4, 1, 3, 1}}}));
  EXPECT_EQ(CountMacs({{conv}}, {2, 6, 5}).value(), 6 * 5 * 4 * 1 * 3);
}

TEST(LayerTableTest, RefusesWithTheFieldsName) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"softplus": {"beta": 0}})", "field[0].softplus.beta: 0 is outside [1e-06, 1e+06]"},
      {R"({"softplus": {"beta": "NaN"}})", "field[0].softplus.beta: nan is outside"},
      {R"({"elu": {"alpha": "Infinity"}})", "field[0].elu.alpha: inf is outside"},
      {R"({"leaky_relu": {"negative_slope": 1e7}})", "leaky_relu.negative_slope: 1e+07 is outside"},
      {R"({"gelu": {"approximate": "erf"}})", "gelu.approximate: 'erf' is none of none, tanh"},
      {R"({"layer_norm": {}})", "layer_norm.normalized_shape: dimensions: 0 is outside [1, 3]"},
      {R"({"layer_norm": {"normalized_shape": [3, 0]}})", "normalized_shape: 0 is outside"},
      {R"({"layer_norm": {"normalized_shape": [3], "eps": 0}})", "layer_norm.eps: 0 is outside"},
      {R"({"max_pool": {}})", "max_pool.kernel: 0 is outside [1, 64]"},
      {R"({"max_pool": {"kernel": 2, "stride": 0}})", "max_pool.stride: 0 is outside"},
      {R"({"pixel_shuffle": {}})", "pixel_shuffle.upscale_factor: 0 is outside [1, 64]"},
      {R"({"pixel_unshuffle": {"downscale_factor": 65}})", "downscale_factor: 65 is outside"},
      {R"({"conv2d": {"in": 1, "out": 1}})", "field[0].conv2d.kernel: 0 is outside [1, 64]"},
      {R"({"conv2d": {"in": 1, "out": 1, "kernel_size": [3]}})",
       "conv2d.kernel_size: wants [height, width], instead of kernel, found [3]"},
      {R"({"conv2d": {"in": 1, "out": 1, "kernel": 3, "kernel_size": [3, 1]}})",
       "conv2d.kernel_size: wants [height, width], instead of kernel, found [3, 1] beside 3"},
      {R"({"conv2d": {"in": 1, "out": 1, "kernel_size": [3, 65]}})", "kernel_size: 65 is outside"},
      {R"({"conv2d": {"in": 1, "out": 1, "kernel": 1, "groups": 0}})", "groups: 0 is outside"},
      {R"({"film": {"gate": "tanh"}})", "film.gate: 'tanh' is none of one_plus, sigmoid"},
      {R"({"galerkin_linear": {"in": 1, "out": 1, "terms": 65}})", "terms: 65 is outside [1, 64]"},
      {R"({"galerkin_linear": {"in": 1, "out": 1, "period": 0}})", "period: 0 is outside"},
      {R"({"attention": {"channels": 4, "heads": 0}})", "attention.heads: 0 is outside"},
      {R"({"residual": {"layers": [{"elu": {"alpha": -1e9}}]}})",
       "field[0].residual.layers[0].elu.alpha: -1e+09 is outside"},
      {R"({})", "field[0]: a layer names exactly one kind"},
  };
  for (const auto& [json, message] : cases) {
    const absl::Status status = ParsedLayer(json).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << json;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  }
}

struct BadRow {
  Layer layer;
  Shape row;
  const char* message;
};

void ExpectRefused(const std::vector<BadRow>& cases) {
  for (const BadRow& bad : cases) {
    const absl::Status status = OutputShape(LayerList{bad.layer}, bad.row).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad.message;
    EXPECT_THAT(std::string(status.message()), HasSubstr(bad.message));
    EXPECT_FALSE(CountMacs({bad.layer}, bad.row).ok());
  }
}

TEST(LayerTableTest, RefusesRowsThatDoNotFit) {
  const Shape images = {4, 6, 5};
  ExpectRefused({
      {{Conv2dLayer{.in = 4, .out = 6, .groups = 3}},
       images,
       "[0].conv2d: groups 3 does not divide in 4"},
      {{Conv2dLayer{.in = 4, .out = 6, .groups = 4}}, images, "groups 4 does not divide out 6"},
      {{Conv2dLayer{.in = 4, .out = 6, .kernel = {7, 1}}},
       images,
       "a kernel of 7 x 1 does not fit into [4, 6, 5] with padding 0 x 0"},
      {{LayerNormLayer{.normalized_shape = {6}}},
       images,
       "[0].layer_norm: wants rows of a shape that ends in [6], found [4, 6, 5]"},
      {{LayerNormLayer{.normalized_shape = {4, 6, 5}}}, {5}, "ends in [4, 6, 5], found [5]"},
      {{MaxPoolLayer{.kernel = 2, .padding = 2}},
       images,
       "padding 2 is more than half of kernel 2"},
      {{MaxPoolLayer{}}, {4}, "[0].max_pool: wants rows of [C, H, W], found [4]"},
      {{PixelShuffleLayer{.upscale_factor = 3}},
       images,
       "[0].pixel_shuffle: upscale_factor squared 9 does not divide channels 4"},
      {{PixelUnshuffleLayer{.downscale_factor = 2}},
       images,
       "[0].pixel_unshuffle: downscale_factor 2 does not divide width 5"},
      {{PixelUnshuffleLayer{.downscale_factor = 5}}, images, "does not divide height 6"},
      {{ResidualLayer{.layers = {{DepthCatLayer{}}}}},
       images,
       "[0].residual: layers give [5, 6, 5], which cannot be added to their input [4, 6, 5]"},
      {{AugmentLayer{.layers = {{MeanPoolLayer{}}}}},
       images,
       "[0].augment: layers give [4], which cannot stand beside their input [4, 6, 5]"},
      {{ResidualLayer{.layers = {{SinLayer{}}, {MeanPoolLayer{}}}}},
       {4},
       "[0].residual.layers[1].mean_pool: wants rows of [C, H, W], found [4]"},
  });
}

TEST(LayerTableTest, RefusesDepthAndAttentionThatDoNotFit) {
  const Shape images = {4, 6, 5};
  ExpectRefused(
      {{{ClampLayer{.low = 1, .high = -1}}, images, "[0].clamp: low 1 is above high -1"},
       {{AttentionLayer{.channels = 4, .heads = 3}}, images, "heads 3 does not divide channels 4"},
       {{AttentionLayer{.channels = 4}},
        {4, 80, 80},
        "1 heads over 6400 positions make more than 16777216 weights a row"},
       {{ConvTranspose2dLayer{.in = 4, .out = 1, .kernel = 2, .padding = 2}},
        images,
        "padding 2 is not below kernel 2"},
       {{ConvTranspose2dLayer{.in = 4, .out = 1, .output_padding = 1}},
        images,
        "output_padding 1 is not below stride 1"},
       {{ConvTranspose2dLayer{.in = 4, .out = 1, .kernel = 5, .padding = 4}},
        {4, 3, 9},
        "padding 4 leaves nothing of [4, 3, 9]"},
       {{FilmLayer{.layers = {{LinearLayer{.in = 1, .out = 4}}}}},
        images,
        "[0].film: layers give [4], not the [8] scales and shifts for the channels of [4, 6, 5]"},
       {{FilmLayer{.layers = {{LinearLayer{.in = 4, .out = 8}}}}},
        images,
        "[0].film.layers[0].linear: wants rows of [4], found [1]"},
       {{ParallelLayer{.branches = {{}, {{LinearLayer{.in = 4, .out = 8}}, {MeanPoolLayer{}}}}}},
        {4},
        "[0].parallel.branches[1].layers[1].mean_pool: wants rows of [C, H, W], found [8]"},
       {{ParallelLayer{.branches = {{}, {{MaxPoolLayer{.kernel = 2, .stride = 2}}}}}},
        images,
        "[0].parallel: branches[1] gives [4, 3, 2], which cannot stand beside [4, 6, 5] of "
        "branches[0]"},
       {{SinusoidalLayer{.features = 3}}, {1}, "features 3 is odd"},
       {{FourierFeaturesLayer{.features = 2}}, {2}, "wants rows of [1], found [2]"}});
}

// Inner layers count as others do, whatever kind they are within.
TEST(LayerTableTest, NestedLayersHaveLimits) {
  std::string deep = R"({"tanh": {}})";
  for (int i = 0; i < layer_limits::kNesting; ++i) {
    deep =
        absl::StrCat("{\"", i % 2 == 0 ? "residual" : "augment", "\": {\"layers\": [", deep, "]}}");
  }
  EXPECT_TRUE(ParsedLayer(deep).ok());
  deep = absl::StrCat("{\"residual\": {\"layers\": [", deep, "]}}");
  EXPECT_THAT(std::string(ParsedLayer(deep).status().message()),
              HasSubstr("nested deeper than the limit of 4"));
  std::string many = R"({"selu": {}})";
  for (int i = 0; i < layer_limits::kLayers; ++i) many += R"(, {"selu": {}})";
  EXPECT_THAT(
      std::string(ParsedLayer("{\"residual\": {\"layers\": [" + many + "]}}").status().message()),
      HasSubstr("more layers than the limit of 256"));
  std::string branches = "{}";
  for (int i = 1; i < layer_limits::kBranches; ++i) branches += ", {}";
  EXPECT_TRUE(ParsedLayer("{\"parallel\": {\"branches\": [" + branches + "]}}").ok());
  EXPECT_THAT(
      std::string(
          ParsedLayer("{\"parallel\": {\"branches\": [" + branches + ", {}]}}").status().message()),
      HasSubstr("branches: 65 is outside [1, 64]"));
  EXPECT_FALSE(ParsedLayer(R"({"parallel": {}})").ok());
}

TEST(LayerTableTest, MacsAreThoseOfProductsOnly) {
  const Shape images = {4, 6, 6};
  const LayerList inner = {{Conv2dLayer{.in = 4, .out = 4, .kernel = 3, .padding = 1}},
                           {SeluLayer{}}};
  EXPECT_EQ(CountMacs(inner, images).value(), 36 * 4 * 4 * 9);
  EXPECT_EQ(CountMacs({{ResidualLayer{.layers = inner}}}, images).value(), 36 * 4 * 4 * 9);
  EXPECT_EQ(
      CountMacs(
          {{AugmentLayer{.layers = inner}}, {MeanPoolLayer{}}, {LinearLayer{.in = 8, .out = 3}}},
          images)
          .value(),
      36 * 4 * 4 * 9 + 24);
  EXPECT_EQ(
      CountMacs({{LayerNormLayer{.normalized_shape = images}}, {MaxPoolLayer{}}}, images).value(),
      0);
  EXPECT_EQ(CountMacs({{ConvTranspose2dLayer{.in = 4, .out = 3, .kernel = 2, .stride = 2}}}, images)
                .value(),
            12 * 12 * 3 * 4 * 2 * 2);
  EXPECT_EQ(CountMacs({{AttentionLayer{.channels = 4, .heads = 2}}}, images).value(),
            36 * 4 * 4 * 4 + 2 * 36 * 36 * 4);
  EXPECT_EQ(CountMacs({{FilmLayer{.layers = {{LinearLayer{.in = 1, .out = 8}}}}}}, images).value(),
            8);
  EXPECT_EQ(CountMacs({{ParallelLayer{.branches = {inner, {}, inner}}}}, images).value(),
            2 * 36 * 4 * 4 * 9);
  EXPECT_EQ(CountMacs({{GalerkinLinearLayer{.in = 4, .out = 3, .terms = 5}}}, {4}).value(),
            5 * 3 * (4 + 1));
}

TEST(LayerTableTest, TensorsComeInTheOrderOfTheLayersAndSayHowTheyStart) {
  LayerList layers(11, Layer{SinLayer{}});
  layers[2] = {LinearLayer{.in = 4, .out = 3}};
  layers[10] = {ResidualLayer{
      .layers = {{LayerNormLayer{.normalized_shape = {3}}}, {PreluLayer{.slopes = 3}}}}};
  const auto tensors = ListTensors(layers, "net");
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) names.push_back(name);
  EXPECT_THAT(names, testing::ElementsAre("net.2.weight", "net.2.bias", "net.10.layers.0.weight",
                                          "net.10.layers.0.bias", "net.10.layers.1.weight"));
  EXPECT_EQ(tensors[0].second.start.spread, 0.5);  // 1 / sqrt(4)
  EXPECT_EQ(tensors[2].second.start.value, 1.0);
  EXPECT_EQ(tensors[3].second.start.value, 0.0);
  EXPECT_EQ(tensors[4].second.start.value, 0.25);
}

}  // namespace
}  // namespace hyperserve
