#include "tests/testing/random_layers.h"

#include "core/io/philox.h"
#include "core/io/tensor.h"
#include "core/model/layers/activations.h"
#include "core/model/layers/dense.h"
#include "core/model/layers/depth.h"
#include "core/model/layers/images.h"
#include "core/model/layers/joins.h"
#include "core/model/layers/kind.h"
#include "core/model/layers/norms.h"

namespace hyperserve::fixture {
namespace {

std::vector<Layer> Activations() {
  return {{TanhLayer{}},
          {SigmoidLayer{}},
          {SinLayer{}},
          {ReluLayer{}},
          {SiluLayer{}},
          {SeluLayer{}},
          {SoftplusLayer{}},
          {SoftplusLayer{.beta = 2.5}},
          {EluLayer{.alpha = 0.75}},
          {LeakyReluLayer{.negative_slope = 0.2}},
          {GeluLayer{}},
          {GeluLayer{.approximate = GeluForm::kTanh}}};
}

// Draws blocks of layers, one after the other, and keeps the shape of a row after them.
class Drawing {
 public:
  Drawing(Shape shape, uint64_t seed) : shape_(std::move(shape)), seed_(seed) {}

  LayerList Draw(const int blocks) {
    const int64_t channels = shape_[0];
    for (int i = 0; i < blocks; ++i) {
      const LayerList block = shape_.size() == 1 ? FeatureBlock() : ImageBlock();
      shape_ = OutputShape(block, shape_).value();
      layers_.insert(layers_.end(), block.begin(), block.end());
    }
    layers_.push_back(To(channels));
    shape_[0] = channels;
    return std::move(layers_);
  }

 private:
  // One of 0 ... count - 1.
  int64_t Pick(int64_t count) {
    return Philox4x32({drawn_++, 0, 0, 0}, {static_cast<uint32_t>(seed_), 7})[0] % count;
  }

  Layer To(int64_t channels) const {
    if (shape_.size() == 1) return {LinearLayer{.in = shape_[0], .out = channels}};
    return {Conv2dLayer{.in = shape_[0], .out = channels}};
  }

  // A block that takes rows of any shape.
  LayerList AnyBlock() {
    const int64_t channels = shape_[0];
    const std::vector<Layer> activations = Activations();
    const Layer activation = activations[static_cast<size_t>(Pick(std::ssize(activations)))];
    const LayerList inner = {{DepthCatLayer{.first = Pick(2) == 0}}, activation};
    Drawing within(OutputShape(inner, shape_).value(), seed_);
    switch (Pick(11)) {
      case 10:
        return {{ParallelLayer{.branches = {{inner[0], activation, within.To(2)}, {activation}}}}};
      case 8:
        return {{SkipLayer{.layers = {inner[0], activation, within.To(2)}}}};
      case 9:
        return {{FilmLayer{.gate = Pick(2) == 0 ? FilmGate::kSigmoid : FilmGate::kOnePlus,
                           .layers = {{SinusoidalLayer{.features = 4}},
                                      {LinearLayer{.in = 4, .out = 2 * channels}}}}}};
      case 0:
        return {{GroupNormLayer{.groups = channels, .channels = channels}}};
      case 1:
        return {{LayerNormLayer{.normalized_shape = {shape_.back()}}}};
      case 2:
        return {{LayerNormLayer{.normalized_shape = shape_}}};
      case 3:
        return {{DepthCatLayer{.first = Pick(2) == 0}}};
      case 4:
        return {{AugmentLayer{.layers = {inner[0], activation, within.To(2)}}}};
      case 5:
        return {{ResidualLayer{.layers = {inner[0], activation, within.To(channels)}}}};
      case 6:
        return {{PreluLayer{.slopes = channels}}};
      default:
        return {activation};
    }
  }

  LayerList FeatureBlock() {
    if (Pick(3) == 0) return {To(3 + Pick(30))};
    return AnyBlock();
  }

  LayerList ImageBlock() {
    const int64_t channels = shape_[0], groups = Pick(2) == 0 ? channels : 1;
    switch (Pick(9)) {
      case 0:
      case 1: {
        const HeightWidth kernel = {1 + 2 * Pick(2), 1 + 2 * Pick(3)};
        return {{Conv2dLayer{.in = channels,
                             .out = groups * (1 + Pick(3)),
                             .kernel = kernel,
                             .padding = {kernel.height / 2, kernel.width / 2},
                             .groups = groups}}};
      }
      case 2:
        return {{MaxPoolLayer{.kernel = 3, .stride = 1, .padding = 1}}};
      case 3:
        return {{AvgPoolLayer{.kernel = 3, .stride = 1, .padding = 1}}};
      case 4:
        return {{PixelUnshuffleLayer{.downscale_factor = 2}},
                {Conv2dLayer{.in = 4 * channels, .out = 8, .groups = Pick(2) == 0 ? 1 : 4}},
                {SinLayer{}},
                {PixelShuffleLayer{.upscale_factor = 2}}};
      default:
        return AnyBlock();
    }
  }

  Shape shape_;
  const uint64_t seed_;
  uint32_t drawn_ = 0;
  LayerList layers_;
};

std::vector<LayerExample> ConditionExamples() {
  const Shape features = {4}, images = {4, 6, 5};
  return {{{ConditionCatLayer{.features = kConditionFeatures}}, features},
          {{ConditionCatLayer{.features = kConditionFeatures, .first = true}}, images},
          {{ConditionFilmLayer{.features = kConditionFeatures,
                               .layers = {{DepthCatLayer{}},
                                          {TanhLayer{}},
                                          {LinearLayer{.in = kConditionFeatures + 1, .out = 8}}}}},
           images},
          {{ConditionFilmLayer{.features = kConditionFeatures,
                               .gate = FilmGate::kSigmoid,
                               .layers = {{LinearLayer{.in = kConditionFeatures, .out = 8}}}}},
           features},
          {{FilmLayer{.layers = {{ConditionCatLayer{.features = kConditionFeatures}},
                                 {LinearLayer{.in = kConditionFeatures + 1, .out = 8}}}}},
           features}};
}

std::vector<LayerExample> DepthExamples() {
  const Shape features = {4}, images = {4, 6, 5};
  return {{{FilmLayer{.layers = {{SinusoidalLayer{.features = 6, .max_period = 100, .scale = 3}},
                                 {LinearLayer{.in = 6, .out = 8}}}}},
           images},
          {{FilmLayer{.gate = FilmGate::kSigmoid,
                      .layers = {{FourierFeaturesLayer{.features = 4}},
                                 {LinearLayer{.in = 4, .out = 8}}}}},
           features},
          {{SinusoidalLayer{.features = 6}}, {1}},
          {{FourierFeaturesLayer{.features = 4}}, {1}},
          {{GalerkinLinearLayer{.in = 4, .out = 3}}, features},
          {{GalerkinLinearLayer{
               .in = 4, .out = 3, .terms = 4, .basis = GalerkinBasis::kChebyshev, .bias = false}},
           features},
          {{GalerkinLinearLayer{
               .in = 4, .out = 3, .terms = 5, .basis = GalerkinBasis::kFourier, .period = 2.5}},
           features},
          {{GalerkinLinearLayer{.in = 4, .out = 5, .terms = 4}}, features}};
}

}  // namespace

std::vector<LayerExample> LayerExamples() {
  const Shape features = {4}, images = {4, 6, 5};
  std::vector<LayerExample> examples = {
      {{LinearLayer{.in = 4, .out = 7}}, features},
      {{LinearLayer{.in = 4, .out = 3, .bias = false}}, features},
      {{Conv2dLayer{.in = 4, .out = 3, .kernel = 3, .padding = 1, .stride = 2}}, images},
      {{Conv2dLayer{
           .in = 4, .out = 6, .kernel = {3, 1}, .padding = {1, 0}, .groups = 2, .bias = false}},
       images},
      {{Conv2dLayer{.in = 4, .out = 4, .kernel = 3, .groups = 4}}, images},
      {{BatchNormLayer{.channels = 4, .eps = 1e-3}}, images},
      {{GroupNormLayer{.groups = 2, .channels = 4, .eps = 1e-3}}, images},
      {{LayerNormLayer{.normalized_shape = {4}, .eps = 1e-3}}, features},
      {{LayerNormLayer{.normalized_shape = {5}}}, images},
      {{LayerNormLayer{.normalized_shape = images}}, images},
      {{PreluLayer{.slopes = 1}}, features},
      {{PreluLayer{.slopes = 4}}, images},
      {{AvgPoolLayer{.kernel = 3, .stride = 2, .padding = 1}}, images},
      {{MaxPoolLayer{.kernel = 3, .stride = 2, .padding = 1}}, images},
      {{MeanPoolLayer{}}, images},
      {{FlattenLayer{}}, images},
      {{PixelShuffleLayer{.upscale_factor = 2}}, images},
      {{PixelUnshuffleLayer{.downscale_factor = 3}}, {2, 6, 3}},
      {{DepthCatLayer{}}, features},
      {{DepthCatLayer{.first = true}}, images},
      {{AugmentLayer{.layers = {{DepthCatLayer{}}, {TanhLayer{}}}}}, images},
      {{ResidualLayer{.layers = {{DepthCatLayer{.first = true}},
                                 {SeluLayer{}},
                                 {LinearLayer{.in = 5, .out = 4}}}}},
       features},
      {{SkipLayer{.layers = {{DepthCatLayer{}}, {TanhLayer{}}}}}, images},
      {{ParallelLayer{.branches = {{{DepthCatLayer{}}, {LinearLayer{.in = 5, .out = 3}}},
                                   {{SoftplusLayer{}}},
                                   {}}}},
       features},
      {{ParallelLayer{.branches = {{{Conv2dLayer{.in = 4, .out = 2}}, {TanhLayer{}}},
                                   {{DepthCatLayer{.first = true}}}}}},
       images},
      {{ClampLayer{.low = -0.5, .high = 0.75}}, features},
      {{AffineLayer{.channels = 4}}, images},
      {{UpsampleLayer{.scale_factor = 3}}, images},
      {{ConvTranspose2dLayer{.in = 4, .out = 3, .kernel = 4, .padding = 1, .stride = 2}}, images},
      {{ConvTranspose2dLayer{
           .in = 4, .out = 2, .kernel = 3, .stride = 3, .output_padding = 2, .bias = false}},
       images},
      {{AttentionLayer{.channels = 4, .heads = 2}}, images},
      {{AttentionLayer{.channels = 4}}, images}};
  for (const LayerExample& example : DepthExamples()) examples.push_back(example);
  for (const LayerExample& example : ConditionExamples()) examples.push_back(example);
  for (const Layer& activation : Activations()) {
    examples.push_back({activation, features});
    examples.push_back({activation, images});
  }
  return examples;
}

LayerList RandomLayers(const Shape& row, uint64_t seed) { return Drawing(row, seed).Draw(8); }

}  // namespace hyperserve::fixture
